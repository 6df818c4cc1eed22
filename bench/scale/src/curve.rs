//! Curves: medians, the fitted exponent, the verdict and the CSV.

use std::fmt::Write as _;

use bench_queues::figures::median;

use crate::axis::Axis;
use crate::database::StoreKind;

/// The figures of one point, one per round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Point {
    /// The value on the axis.
    pub(crate) x: usize,
    /// Units sent per second.
    pub(crate) send: Vec<f64>,
    /// Units processed per second.
    pub(crate) process: Vec<f64>,
    /// WAL bytes per unit that was sent and processed; empty on SQLite.
    pub(crate) wal: Vec<f64>,
    /// The database's size before the samples.
    pub(crate) bytes: f64,
}

/// What is measured at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// From the start of the worker until the last outcome is stored.
    Process,
    /// The client's bulk send.
    Send,
}

impl Measure {
    /// The name in the CSV and in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Send => "send",
        }
    }
}

impl Point {
    /// The rates of one measure.
    pub(crate) fn rates(&self, measure: Measure) -> &[f64] {
        match measure {
            Measure::Process => &self.process,
            Measure::Send => &self.send,
        }
    }

    /// The median rate of one measure.
    pub(crate) fn rate(&self, measure: Measure) -> f64 {
        median(self.rates(measure))
    }
}

/// The points of one axis on one store.
#[derive(Debug)]
pub(crate) struct Curve {
    /// What grows.
    pub(crate) axis: Axis,
    /// Where it was measured.
    pub(crate) store: StoreKind,
    /// The points, in order.
    pub(crate) points: Vec<Point>,
}

/// How the time per unit grows with the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// It falls: more of the axis is faster.
    Gains,
    /// It stays.
    Flat,
    /// It grows, but much slower than the axis.
    Slow,
    /// It grows like the axis: twice as much of it takes twice as long per unit.
    Linear,
    /// It grows faster than the axis.
    Worse,
}

impl Growth {
    fn of(exponent: f64) -> Self {
        match exponent {
            e if e < -0.1 => Self::Gains,
            e if e < 0.1 => Self::Flat,
            e if e < 0.5 => Self::Slow,
            e if e < 1.2 => Self::Linear,
            _ => Self::Worse,
        }
    }

    /// The word in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gains => "gains",
            Self::Flat => "flat",
            Self::Slow => "slow growth",
            Self::Linear => "LINEAR",
            Self::Worse => "WORSE",
        }
    }
}

impl Curve {
    /// What is measured on this axis.
    pub(crate) fn measures(&self) -> &'static [Measure] {
        if self.axis.measures_send() { &[Measure::Process, Measure::Send] } else { &[Measure::Process] }
    }

    /// The fitted exponents of the time per unit against the axis: over all points, and over the last two decades,
    /// where a bend would show. `None` with fewer than two points.
    pub(crate) fn exponents(&self, measure: Measure) -> Option<(f64, f64)> {
        let last = self.points.last()?.x;
        let fit = |from: usize| {
            let points = self.points.iter().filter(|point| point.x > 0 && point.x >= from);
            slope(points.map(|point| ((point.x as f64).ln(), -point.rate(measure).ln())).collect())
        };
        Some((fit(0)?, fit(last / 100)?))
    }

    /// One line of the table.
    pub(crate) fn verdict(&self, measure: Measure) -> Option<String> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let (all, tail) = self.exponents(measure)?;
        Some(format!(
            "{:<13} {:<11} {:<8} {:>10} {:>10} {:>11.0} {:>11.0} {:>6.2} {:>7.2} {:>7.2}  {}",
            self.axis.name(),
            self.store.title(),
            measure.name(),
            first.x,
            last.x,
            first.rate(measure),
            last.rate(measure),
            last.rate(measure) / first.rate(measure),
            all,
            tail,
            Growth::of(tail.max(all)).name(),
        ))
    }

    /// The bytes on disk per unit of the axis, between the smallest and the largest point.
    pub(crate) fn bytes_per_unit(&self) -> Option<f64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let counts = matches!(self.axis, Axis::Waiting | Axis::Finished) && last.x > first.x;
        counts.then(|| (last.bytes - first.bytes) / (last.x - first.x) as f64)
    }
}

/// The heading of the table.
pub(crate) fn heading() -> String {
    format!(
        "{:<13} {:<11} {:<8} {:>10} {:>10} {:>11} {:>11} {:>6} {:>7} {:>7}  time per unit",
        "axis", "store", "measure", "from", "to", "units/s at", "units/s at", "last /", "expo-", "of the"
    ) + &format!(
        "\n{:<13} {:<11} {:<8} {:>10} {:>10} {:>11} {:>11} {:>6} {:>7} {:>7}",
        "", "", "", "", "", "first", "last", "first", "nent", "end"
    )
}

/// The least-squares slope, or `None` with fewer than two points.
fn slope(points: Vec<(f64, f64)>) -> Option<f64> {
    if points.len() < 2 {
        return None;
    }
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    Some(above / below)
}

/// All curves of one axis as CSV.
pub(crate) fn csv(axis: Axis, curves: &[&Curve]) -> String {
    let mut text = format!(
        "store,measure,{},units_per_second,lowest,highest,rounds,database_bytes,wal_bytes_per_unit\n",
        axis.name()
    );
    for curve in curves {
        for measure in curve.measures() {
            for point in &curve.points {
                let rates = point.rates(*measure);
                let (lowest, highest) = range(rates);
                let wal =
                    if point.wal.is_empty() { String::new() } else { format!("{:.0}", median(&point.wal)) };
                let _ = writeln!(
                    text,
                    "{},{},{},{:.0},{lowest:.0},{highest:.0},{},{:.0},{wal}",
                    curve.store.name(),
                    measure.name(),
                    point.x,
                    point.rate(*measure),
                    rates.len(),
                    point.bytes,
                );
            }
        }
    }
    text
}

/// The lowest and highest of some rates.
pub(crate) fn range(rates: &[f64]) -> (f64, f64) {
    rates.iter().fold((f64::INFINITY, 0.0), |(low, high), rate| (low.min(*rate), high.max(*rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(rate: impl Fn(f64) -> f64) -> Curve {
        let points = [1, 10, 100, 1_000, 10_000];
        let point = |x: usize| Point { x, process: vec![rate(x as f64)], ..Point::default() };
        Curve {
            axis: Axis::Tenants,
            store: StoreKind::Sqlite,
            points: points.into_iter().map(point).collect(),
        }
    }

    fn growth(rate: impl Fn(f64) -> f64) -> Growth {
        let (all, tail) = curve(rate).exponents(Measure::Process).unwrap_or((f64::NAN, f64::NAN));
        Growth::of(all.max(tail))
    }

    #[test]
    fn growth_is_told_by_the_exponent_of_the_time_per_unit() {
        assert_eq!(growth(|_| 5e4), Growth::Flat);
        assert_eq!(growth(|x| 5e4 * x.powf(0.8)), Growth::Gains);
        assert_eq!(growth(|x| 5e4 / x.powf(0.3)), Growth::Slow);
        assert_eq!(growth(|x| 5e4 / x), Growth::Linear);
        assert_eq!(growth(|x| 5e4 / x.powi(2)), Growth::Worse);
    }

    #[test]
    fn a_bend_at_the_end_is_not_hidden_by_a_flat_start() {
        assert_eq!(growth(|x| 5e4 / (1.0 + x / 500.0)), Growth::Linear);
    }
}
