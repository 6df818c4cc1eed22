//! Medians, percentiles and the tables.

use std::fmt::Write as _;

/// A goal and the measured value.
pub(crate) struct Goal {
    what: String,
    ours: f64,
    wanted: Wanted,
}

/// The condition of a goal.
pub(crate) enum Wanted {
    AtLeast(f64),
    Under(f64),
}

impl Goal {
    pub(crate) fn new(what: impl Into<String>, ours: f64, wanted: Wanted) -> Self {
        Self { what: what.into(), ours, wanted }
    }

    fn cells(&self) -> Vec<String> {
        let (goal, reached) = match self.wanted {
            Wanted::AtLeast(least) => (format!("at least {least}"), self.ours >= least),
            Wanted::Under(bound) => (format!("under {bound}"), self.ours < bound),
        };
        let mark = if reached { "✓" } else { "✗" };
        vec![self.what.clone(), number(self.ours), format!("{goal} {mark}")]
    }
}

/// Formats the table of goals.
pub(crate) fn goals(goals: &[Goal]) -> String {
    let head = ["", "ours", "goal"].map(str::to_owned).to_vec();
    table(&std::iter::once(head).chain(goals.iter().map(Goal::cells)).collect::<Vec<_>>())
}

/// Formats a Markdown table. The first row is the header.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (place, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if place == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    text
}

/// The median, the minimum and the maximum.
pub(crate) fn shown(values: &[f64]) -> String {
    let at = |percent| number(percentile(values, percent));
    format!("{} ({}–{})", at(50), at(0), at(100))
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The percentile `percent`.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * percent / 100).or(sorted.last()).copied().unwrap_or(f64::NAN)
}
