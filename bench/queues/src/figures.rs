//! Medians, percentiles and the table.

use anyhow::Result;

/// One row of the table.
pub struct Row {
    name: String,
    ours: f64,
    against: Option<f64>,
    verdict: String,
}

impl Row {
    /// Ours as a fraction of the limit; the goal is at least `goal`.
    pub fn ratio(name: &str, ours: f64, limit: f64, goal: f64) -> Self {
        let ratio = ours / limit;
        let verdict = format!("{ratio:.2} (goal {goal}) {}", mark(ratio >= goal));
        Self { name: name.to_owned(), ours, against: Some(limit), verdict }
    }

    /// Ours as a multiple of a floor; the goal is at most `most`.
    pub fn within(name: &str, ours: f64, floor: f64, most: f64) -> Self {
        let verdict = format!("+{:.3} (goal +{:.1}) {}", ours - floor, most - floor, mark(ours <= most));
        Self { name: name.to_owned(), ours, against: Some(floor), verdict }
    }

    /// A figure without a goal.
    pub fn plain(name: &str, ours: f64) -> Self {
        Self { name: name.to_owned(), ours, against: None, verdict: String::new() }
    }

    /// A figure with an upper bound.
    pub fn most(name: &str, ours: f64, most: f64) -> Self {
        let verdict = format!("(goal under {most}) {}", mark(ours < most));
        Self { name: name.to_owned(), ours, against: None, verdict }
    }
}

fn mark(good: bool) -> &'static str {
    if good { "✓" } else { "✗" }
}

/// Prints the table.
pub fn print(rows: &[Row]) {
    println!("{:<58} {:>12} {:>12}   ratio or goal", "", "ours", "against");
    for Row { name, ours, against, verdict } in rows {
        let against = against.map_or_else(String::new, number);
        println!("{name:<58} {:>12} {against:>12}   {verdict}", number(*ours));
    }
}

/// Prints what ran. After `--once` the figures mean nothing: the runs are small, and it may be a debug build.
pub fn list(rows: &[Row]) {
    for Row { name, .. } in rows {
        println!("ran: {name}");
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// The median of several runs; of an even number, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

/// The percentile `percent`.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * percent / 100).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

/// This process's CPU time in seconds and its peak and current memory in MB, from /proc.
pub fn usage() -> Result<(f64, f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> f64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or("");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    };
    // 100 ticks per second on every supported Linux.
    Ok((ticks / 100.0, field("VmHWM"), field("VmRSS")))
}
