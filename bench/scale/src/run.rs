//! Measures one curve within its share of the budget.
//!
//! Points with a small state get a fresh database in every round, and each round goes through all of them, so
//! that a slow minute of the machine does not hit one point alone. Points with a large state are filled once.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::axis::Axis;
use crate::curve::Point;
use crate::database::Databases;
use crate::measure::{PointState, Sampling, fill_count};

/// How long a step may continue after the curve's deadline before it is dropped.
const GRACE: Duration = Duration::from_secs(30);

/// How a curve is measured.
pub(crate) struct CurveSettings {
    /// The points, in order.
    pub(crate) points: Vec<usize>,
    /// Samples per point.
    pub(crate) rounds: usize,
    /// How each sample is taken.
    pub(crate) sampling: Sampling,
    /// When the curve ends, complete or not.
    pub(crate) deadline: Instant,
}

/// A small point of an axis, for `--once`.
pub(crate) fn small_point(axis: Axis) -> Vec<usize> {
    let mut points = axis.points(usize::MAX).into_iter().take(2);
    points.rfind(|point| *point <= 1_000).into_iter().collect()
}

/// Measures a curve. Returns its points, and the error that ended it early, if one did.
pub(crate) async fn curve(
    axis: Axis,
    databases: &Databases,
    settings: &CurveSettings,
) -> (Vec<Point>, Option<anyhow::Error>) {
    let mut points: Vec<Point> =
        settings.points.iter().map(|x| Point { x: *x, ..Point::default() }).collect();
    let end = settings.deadline + settings.sampling.limit + GRACE;
    let measured =
        tokio::time::timeout_at(end.into(), measure_points(axis, databases, settings, &mut points));
    let result = measured
        .await
        .unwrap_or_else(|_| bail!("a step did not end {} s after the deadline", GRACE.as_secs()));
    points.retain(|point| !point.process.is_empty());
    match result {
        Err(error) if Instant::now() >= settings.deadline => {
            eprintln!("  ended by the budget: {error:#}");
            (points, None)
        }
        result => (points, result.err()),
    }
}

async fn measure_points(
    axis: Axis,
    databases: &Databases,
    settings: &CurveSettings,
    points: &mut [Point],
) -> Result<()> {
    let &CurveSettings { rounds, sampling, deadline, .. } = settings;
    let is_quick = |point: &Point| fill_count(axis, point.x, sampling) <= sampling.units;
    let quick = points.iter().take_while(|point| is_quick(point)).count();
    let (quick, large) = points.split_at_mut(quick);
    let mut fill_rate = None;
    for round in 0..rounds {
        for point in quick.iter_mut() {
            if Instant::now() >= deadline {
                eprintln!("{}: the budget ended in round {}", axis.name(), round + 1);
                return Ok(());
            }
            let filled = fill_count(axis, point.x, sampling);
            let start = Instant::now();
            let mut state = PointState::prepare(databases, axis, point.x, sampling, deadline).await?;
            // A small fill is mostly the creation of the database.
            fill_rate =
                (filled >= 10_000).then(|| filled as f64 / start.elapsed().as_secs_f64()).or(fill_rate);
            point.bytes = state.bytes()?;
            state.sample(sampling, deadline, point).await?;
            report(axis, point);
        }
    }
    for point in large {
        let filled = fill_count(axis, point.x, sampling);
        if let Some(rate) = fill_rate
            && Duration::from_secs_f64(filled as f64 / rate)
                > deadline.saturating_duration_since(Instant::now())
        {
            eprintln!(
                "{} {}: left out, filling would take {:.0} s",
                axis.name(),
                point.x,
                filled as f64 / rate
            );
            return Ok(());
        }
        let start = Instant::now();
        let mut state = PointState::prepare(databases, axis, point.x, sampling, deadline).await?;
        eprintln!("{} {}: filled in {:.1} s", axis.name(), point.x, start.elapsed().as_secs_f64());
        fill_rate = Some(filled as f64 / start.elapsed().as_secs_f64());
        point.bytes = state.bytes()?;
        for round in 0..rounds {
            if round > 0 && Instant::now() >= deadline {
                return Ok(());
            }
            // The first sample may end after the deadline: the state was expensive.
            state.sample(sampling, deadline + sampling.limit, point).await?;
            report(axis, point);
        }
    }
    Ok(())
}

/// Prints the latest sample.
fn report(axis: Axis, point: &Point) {
    let last = |rates: &[f64]| rates.last().copied().unwrap_or(f64::NAN);
    eprintln!(
        "{} {}: sent {:.0}/s, processed {:.0}/s",
        axis.name(),
        point.x,
        last(&point.send),
        last(&point.process)
    );
}
