//! The books after the storm: what must hold, whatever was killed.

use std::collections::HashSet;
use std::path::Path;

use longshore::store::Queues;
use longshore::{BatchId, Scope};
use serde::Serialize;

use super::process::BATCH;
use super::run_log;
use super::storm::Record;
use crate::commands::verify;
use crate::output::Output;
use crate::settings::Settings;
use crate::span::brief;
use crate::store;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Books {
    ok: bool,
    units: u64,
    kills: u32,
    restarts: u32,
    repeats: u64,
    seconds: f64,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    found: String,
}

/// Looks at everything that the storm left.
pub async fn check(record: &Record, dir: &Path, settings: &Settings) -> anyhow::Result<Books> {
    let store = store::open(settings).await?;
    let batch = store.batch(&Scope::All, &BatchId::new(BATCH)?).await?;
    let leased = store.totals(&Scope::All, &Queues::All).await?.counts.leased;
    let verdict = verify::check(&*store).await?;
    let (distinct, runs) = runs(dir)?;
    let repeats = runs - distinct;
    // A killed worker repeats at most what ran in it and what it had not yet recorded; a restart of
    // the server may cost all workers that much.
    let struck = u64::from(record.kills) + u64::from(record.restarts) * u64::from(record.workers);
    let most = struck * u64::from(longshore::most_at_risk(record.slots));
    let counts = &batch.counts;
    let checks = vec![
        look("no_unit_lost", distinct == record.units, || {
            format!("{distinct} of {} units ran", record.units)
        }),
        look("submit_resumes", counts.total() == record.units, || {
            let at = record.submitter_killed_at;
            format!(
                "submitter killed after {at} units, {} in the batch: no gap, no repeat",
                counts.total()
            )
        }),
        look(
            "tally_is_exact",
            counts.done == record.units && counts.total() == counts.done,
            || {
                format!(
                    "{} done + {} failed + {} cancelled",
                    counts.done, counts.failed, counts.cancelled
                )
            },
        ),
        look("nothing_leased", leased == 0, || format!("{leased} units are still held")),
        look("repeats_are_bounded", repeats <= most, || {
            format!("{repeats} runs repeated after {}, at most {most} allowed", blows(record))
        }),
        look("drain_is_clean", record.bad_ends.is_empty(), || match &record.bad_ends[..] {
            [] => "all workers ended with exit code 0".into(),
            ends => ends.join(", "),
        }),
        look("verify", verdict.ok, || {
            format!("recounted {} units: {} violations", verdict.units, verdict.violations.len())
        }),
    ];
    let Record { units, kills, restarts, .. } = *record;
    let ok = checks.iter().all(|check| check.ok);
    Ok(Books { ok, units, kills, restarts, repeats, seconds: record.took.as_secs_f64(), checks })
}

fn blows(record: &Record) -> String {
    match record.restarts {
        0 => format!("{} kills", record.kills),
        restarts => format!("{} kills and {restarts} restart of the server", record.kills),
    }
}

fn look(name: &'static str, ok: bool, found: impl FnOnce() -> String) -> Check {
    Check { name, ok, found: found() }
}

/// How many units left a line, and how many lines there are.
fn runs(dir: &Path) -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string(run_log(dir))?;
    let distinct: HashSet<&str> = text.lines().collect();
    Ok((distinct.len() as u64, text.lines().count() as u64))
}

impl Books {
    /// Whether everything holds.
    pub fn balance(&self) -> bool {
        self.ok
    }

    /// Tells it.
    pub fn print(&self, output: Output) -> anyhow::Result<()> {
        output.answer(self, || {
            let lines = self.checks.iter().map(|check| {
                let mark = if check.ok { "✓" } else { "✗" };
                format!("{} {:<20} {}", output.paint(mark, mark), check.name, check.found)
            });
            let took = brief(std::time::Duration::from_secs_f64(self.seconds));
            let end = match self.ok {
                true => format!("\n{} units survived {} kills in {took}.", self.units, self.kills),
                false => "\nThe books do not balance.".to_owned(),
            };
            lines.chain([end]).collect::<Vec<_>>().join("\n")
        })
    }
}
