//! Checks the invariants that must hold after a run, whatever was killed.

use std::collections::HashSet;
use std::path::Path;

use longshore::store::Queues;
use longshore::{BatchId, Scope, duration};
use serde::Serialize;

use super::fault_injection::{ChaosRecord, FaultRecord};
use super::process::BATCH;
use super::run_log;
use crate::commands::verify;
use crate::output::Output;
use crate::settings::Settings;
use crate::store;

/// The result of all checks.
#[derive(Debug, Serialize)]
pub struct InvariantReport {
    ok: bool,
    units: u64,
    kills: u32,
    restarts: u32,
    faults: Vec<FaultRecord>,
    repeats: u64,
    seconds: f64,
    checks: Vec<InvariantCheck>,
}

#[derive(Debug, Serialize)]
struct InvariantCheck {
    name: &'static str,
    ok: bool,
    found: String,
}

/// Checks everything that the run left.
pub async fn check(record: &ChaosRecord, dir: &Path, settings: &Settings) -> anyhow::Result<InvariantReport> {
    let store = store::open(settings).await?;
    let batch = store.batch(&Scope::All, &BatchId::new(BATCH)?).await?;
    let leased = store.totals(&Scope::All, &Queues::All).await?.counts.leased;
    let verified = verify::check(&*store).await?;
    let (distinct, runs) = runs(dir)?;
    let repeats = runs - distinct;
    // A killed worker repeats at most the units that ran in it and the results it had not yet
    // recorded; a stopped worker as much; a restart or a fault of the store may cost every worker
    // that much.
    let by_faults: u64 = record.faults.iter().map(|fault| u64::from(fault.struck)).sum();
    let struck = u64::from(record.kills) + u64::from(record.restarts) * u64::from(record.workers) + by_faults;
    let most = struck * u64::from(longshore::max_unrecorded_units(record.slots));
    let counts = &batch.counts;
    let checks = vec![
        check_that("no_unit_lost", distinct == record.units, || {
            format!("{distinct} of {} units ran", record.units)
        }),
        check_that("submit_resumes", counts.total() == record.units, || {
            let at = record.submitter_killed_at;
            format!("submitter killed after {at} units, {} in the batch: no gap, no repeat", counts.total())
        }),
        check_that("tally_is_exact", counts.done == record.units && counts.total() == counts.done, || {
            format!("{} done + {} failed + {} cancelled", counts.done, counts.failed, counts.cancelled)
        }),
        check_that("nothing_leased", leased == 0, || format!("{leased} units are still held")),
        check_that("repeats_are_bounded", repeats <= most, || {
            format!("{repeats} runs repeated after {}, at most {most} allowed", faults(record))
        }),
        check_that("drain_is_clean", record.bad_ends.is_empty(), || match &record.bad_ends[..] {
            [] => "all workers ended with exit code 0".into(),
            ends => ends.join(", "),
        }),
        check_that("verify", verified.ok, || {
            format!("recounted {} units: {} violations", verified.units, verified.violations.len())
        }),
    ];
    let ChaosRecord { units, kills, restarts, .. } = *record;
    let ok = checks.iter().all(|check| check.ok);
    let (faults, seconds) = (record.faults.clone(), record.took.as_secs_f64());
    Ok(InvariantReport { ok, units, kills, restarts, faults, repeats, seconds, checks })
}

fn faults(record: &ChaosRecord) -> String {
    let mut words = format!("{} kills", record.kills);
    if record.restarts > 0 {
        words += &format!(" and {} restart of the server", record.restarts);
    }
    if !record.faults.is_empty() {
        words += &format!(" and {} other faults", record.faults.len());
    }
    words
}

fn check_that(name: &'static str, ok: bool, found: impl FnOnce() -> String) -> InvariantCheck {
    InvariantCheck { name, ok, found: found() }
}

/// How many units left a line, and how many lines there are.
fn runs(dir: &Path) -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string(run_log(dir))?;
    let distinct: HashSet<&str> = text.lines().collect();
    Ok((distinct.len() as u64, text.lines().count() as u64))
}

impl InvariantReport {
    /// Whether all invariants hold.
    pub fn holds(&self) -> bool {
        self.ok
    }

    /// Prints the result.
    pub fn print(&self, output: Output) -> anyhow::Result<()> {
        output.answer(self, || {
            let lines = self.checks.iter().map(|check| {
                let mark = if check.ok { "✓" } else { "✗" };
                format!("{} {:<20} {}", output.paint(mark, mark), check.name, check.found)
            });
            let recovered = self.faults.iter().map(|fault| {
                let after = fault.recovered_after_seconds;
                format!("  {}: work continued after {after:.1} s", fault.fault)
            });
            let took = duration::format(std::time::Duration::from_secs_f64(self.seconds));
            let end = match self.ok {
                true => format!("\n{} units survived {} kills in {took}.", self.units, self.kills),
                false => "\nInvariants are violated.".to_owned(),
            };
            lines.chain(recovered).chain([end]).collect::<Vec<_>>().join("\n")
        })
    }
}
