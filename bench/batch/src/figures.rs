//! Medians, how far apart the runs were, and the table.

use anyhow::{Context as _, Result};

/// What several runs measured.
#[derive(Debug, Default)]
pub(crate) struct Measured(Vec<f64>);

impl Measured {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle one.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The least and the most.
    fn spread(&self) -> String {
        match self.sorted()[..] {
            [least, .., most] => format!("{least:.0}–{most:.0}"),
            _ => String::new(),
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// One line of the table.
pub(crate) struct Row {
    name: String,
    ours: f64,
    spread: String,
    against: Option<f64>,
    verdict: String,
}

impl Row {
    /// Ours as a multiple of something else; at least `goal` is good.
    pub(crate) fn ratio(name: &str, ours: &Measured, against: f64, goal: f64) -> Self {
        let ratio = ours.median() / against;
        let verdict = format!("{ratio:.3} (goal {goal}) {}", mark(ratio >= goal));
        Self::of_runs(name, ours, Some(against), verdict)
    }

    /// A figure with a lower bound.
    pub(crate) fn least(name: &str, ours: &Measured, goal: f64) -> Self {
        let verdict = format!("(goal {goal}) {}", mark(ours.median() >= goal));
        Self::of_runs(name, ours, None, verdict)
    }

    /// A figure with an upper bound.
    pub(crate) fn most(name: &str, ours: f64, most: f64) -> Self {
        let verdict = format!("(goal under {most}) {}", mark(ours < most));
        Self { name: name.to_owned(), ours, spread: String::new(), against: None, verdict }
    }

    /// A figure that must not have grown; a tenth is the allocator's.
    pub(crate) fn flat(name: &str, ours: f64, before: f64) -> Self {
        let ratio = ours / before;
        let verdict = format!("{ratio:.3} (goal under 1.1) {}", mark(ratio < 1.1));
        Self { name: name.to_owned(), ours, spread: String::new(), against: Some(before), verdict }
    }

    fn of_runs(name: &str, ours: &Measured, against: Option<f64>, verdict: String) -> Self {
        let (name, spread) = (name.to_owned(), ours.spread());
        Self { name, ours: ours.median(), spread, against, verdict }
    }
}

fn mark(good: bool) -> &'static str {
    if good { "✓" } else { "✗" }
}

/// Prints the table.
pub(crate) fn print(rows: &[Row]) {
    println!("{:<64} {:>8} {:>13} {:>8}   ratio or goal", "", "ours", "least–most", "against");
    for Row { name, ours, spread, against, verdict } in rows {
        let against = against.map_or_else(String::new, number);
        println!("{name:<64} {:>8} {spread:>13} {against:>8}   {verdict}", number(*ours));
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// The most memory that this process has had, in MB, from /proc.
pub(crate) fn peak_memory() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes: f64 = kilobytes.context("no VmHWM in /proc/self/status")?.parse()?;
    Ok(kilobytes / 1024.0)
}
