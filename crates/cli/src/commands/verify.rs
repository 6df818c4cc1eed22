//! `verify`: recounts the store and reports violations of its invariants.

use longshore::store::{Queues, Violation};
use longshore::{Scope, Store};
use serde::Serialize;

use super::connect;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// The result of a verification.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    /// Whether there are no violations.
    pub ok: bool,
    /// The number of units.
    pub units: u64,
    /// The number of batches.
    pub batches: u64,
    /// The violations.
    pub violations: Vec<Violation>,
}

/// Runs the command.
pub async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, _) = connect(settings).await?;
    let report = check(&*store).await?;
    settings.output.answer(&report, || report_text(&report))?;
    Ok(if report.ok { ExitCode::Good } else { ExitCode::Error })
}

/// Checks a store.
pub async fn check(store: &dyn Store) -> anyhow::Result<VerifyReport> {
    let violations = store.verify().await?;
    let totals = store.totals(&Scope::All, &Queues::All).await?;
    let batches = count_batches(store).await?;
    let ok = violations.is_empty();
    Ok(VerifyReport { ok, units: totals.counts.total(), batches, violations })
}

async fn count_batches(store: &dyn Store) -> anyhow::Result<u64> {
    let (mut count, mut after) = (0, None);
    loop {
        let page = store.batches(&Scope::All, None, after.as_deref(), 1000).await?;
        count += page.items.len() as u64;
        after = page.next;
        if after.is_none() {
            return Ok(count);
        }
    }
}

fn report_text(report: &VerifyReport) -> String {
    let VerifyReport { units, batches, violations, .. } = report;
    if report.ok {
        return format!("ok: {units} units, {batches} batches, counters exact");
    }
    let lines = violations.iter().map(|v| format!("{}: {}", v.rule, v.found));
    let heading = format!("{} violations in {units} units, {batches} batches", violations.len());
    [heading].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}
