//! Medians, the spread of the runs, and the table.

use anyhow::{Context as _, Result};

/// The factor by which a figure may grow and still count as flat.
const FLAT: f64 = 1.25;

/// The measurements of several runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured(Vec<f64>);

impl Measured {
    /// A known value.
    pub(crate) fn known(value: f64) -> Self {
        Self(vec![value])
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The median, the minimum and the maximum, as text.
    fn shown(&self) -> (String, String) {
        (number(self.median()), self.spread())
    }

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

/// One row of the table.
pub(crate) struct Row {
    name: String,
    ours: Measured,
    against: Option<Measured>,
    verdict: String,
}

impl Row {
    /// Ours as a multiple of another figure; the goal is at least `goal`.
    pub(crate) fn ratio(name: &str, ours: Measured, against: Measured, goal: f64) -> Self {
        let ratio = ours.median() / against.median();
        let verdict = format!("{ratio:.3} (goal {goal}) {}", mark(ratio >= goal));
        Self { name: name.to_owned(), ours, against: Some(against), verdict }
    }

    /// A figure with a lower bound.
    pub(crate) fn least(name: &str, ours: Measured, goal: f64) -> Self {
        let verdict = format!("(goal {goal}) {}", mark(ours.median() >= goal));
        Self { name: name.to_owned(), ours, against: None, verdict }
    }

    /// A figure with an upper bound.
    pub(crate) fn most(name: &str, ours: f64, most: f64) -> Self {
        let verdict = format!("(goal under {most}) {}", mark(ours < most));
        Self { name: name.to_owned(), ours: Measured::known(ours), against: None, verdict }
    }

    /// A figure that must not grow. Caches and the allocator's arenas fill slowly and may add a little; memory
    /// kept per row would multiply it.
    pub(crate) fn flat(name: &str, ours: f64, before: f64) -> Self {
        let ratio = ours / before;
        let verdict = format!("{ratio:.3} (goal under {FLAT}) {}", mark(ratio < FLAT));
        let (ours, before) = (Measured::known(ours), Measured::known(before));
        Self { name: name.to_owned(), ours, against: Some(before), verdict }
    }
}

fn mark(good: bool) -> &'static str {
    if good { "✓" } else { "✗" }
}

/// Prints the table.
pub(crate) fn print(rows: &[Row]) {
    let (ours, against) = (("ours", "least–most"), ("against", "least–most"));
    line("", ours, against, "ratio or goal");
    for Row { name, ours, against, verdict } in rows {
        let (median, spread) = ours.shown();
        let (other, others) = against.as_ref().map(Measured::shown).unwrap_or_default();
        line(name, (&median, &spread), (&other, &others), verdict);
    }
}

/// Prints what ran. After `--once` the figures mean nothing: the runs are small, and it may be a debug build.
pub(crate) fn list(rows: &[Row]) {
    for Row { name, .. } in rows {
        println!("ran: {name}");
    }
}

fn line(name: &str, ours: (&str, &str), against: (&str, &str), verdict: &str) {
    let ((ours, spread), (against, others)) = (ours, against);
    println!("{name:<60} {ours:>7} {spread:>11} {against:>8} {others:>11}   {verdict}");
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// The peak memory of this process in MB, from /proc.
pub(crate) fn peak_memory() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes: f64 = kilobytes.context("no VmHWM in /proc/self/status")?.parse()?;
    Ok(kilobytes / 1024.0)
}
