//! Medians, percentiles and the tables.

use std::fmt::Write as _;

/// The measurements of several runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured(Vec<f64>);

impl Measured {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.0)
    }

    /// The median, the minimum and the maximum.
    pub(crate) fn shown(&self) -> String {
        let (least, most) = (percentile(&self.0, 0), percentile(&self.0, 100));
        format!("{} ({}–{})", number(self.median()), number(least), number(most))
    }
}

/// A goal and the measured value.
pub(crate) struct Goal {
    what: String,
    ours: f64,
    against: Option<f64>,
    wanted: Wanted,
}

enum Wanted {
    /// A ratio.
    AtMost(f64),
    /// A ratio.
    AtLeast(f64),
    /// The figure itself.
    Under(f64),
    /// Shown without a goal.
    Nothing,
}

impl Goal {
    /// Ours takes at most `times` as long as another.
    pub(crate) fn at_most(what: impl Into<String>, ours: f64, against: f64, times: f64) -> Self {
        Self::new(what, ours, Some(against), Wanted::AtMost(times))
    }

    /// Ours is at least `times` as quick as another.
    pub(crate) fn at_least(what: impl Into<String>, ours: f64, against: f64, times: f64) -> Self {
        Self::new(what, ours, Some(against), Wanted::AtLeast(times))
    }

    /// Ours stays under a bound; shown with the value of this machine without us.
    pub(crate) fn under(what: impl Into<String>, ours: f64, without: f64, bound: f64) -> Self {
        Self::new(what, ours, Some(without), Wanted::Under(bound))
    }

    /// Ours and another, without a goal.
    pub(crate) fn shown(what: impl Into<String>, ours: f64, against: f64) -> Self {
        Self::new(what, ours, Some(against), Wanted::Nothing)
    }

    fn new(what: impl Into<String>, ours: f64, against: Option<f64>, wanted: Wanted) -> Self {
        Self { what: what.into(), ours, against, wanted }
    }

    fn cells(&self) -> Vec<String> {
        let against = self.against.map(number).unwrap_or_default();
        let ratio = self.against.map_or(f64::NAN, |against| self.ours / against);
        let goal = match self.wanted {
            Wanted::AtMost(most) => format!("≤ {most} {}", mark(ratio <= most)),
            Wanted::AtLeast(least) => format!("≥ {least} {}", mark(ratio >= least)),
            Wanted::Under(bound) => format!("under {bound} {}", mark(self.ours < bound)),
            Wanted::Nothing => String::new(),
        };
        let ratio = format!("{ratio:.2}");
        vec![self.what.clone(), number(self.ours), against, ratio, goal]
    }
}

fn mark(good: bool) -> &'static str {
    if good { "✓" } else { "✗" }
}

/// Formats the table of goals.
pub(crate) fn goals(goals: &[Goal]) -> String {
    let head = ["", "ours", "against", "ratio", "goal"].map(str::to_owned).to_vec();
    table(std::iter::once(head).chain(goals.iter().map(Goal::cells)).collect())
}

/// Formats a Markdown table with aligned columns. The first row is the header.
pub(crate) fn table(rows: Vec<Vec<String>>) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (place, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if place == 0 {
            widths.iter().for_each(|width| _ = write!(text, "|{}", "-".repeat(width + 2)));
            text.push_str("|\n");
        }
    }
    text
}

pub(crate) fn number(value: f64) -> String {
    match value {
        _ if value >= 1000.0 => format!("{value:.0}"),
        _ if value >= 100.0 => format!("{value:.1}"),
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
