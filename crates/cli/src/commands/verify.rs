//! `verify`: recounts the store and says what is wrong with it, if anything.

use longshore::store::{Queues, Violation};
use longshore::{Scope, Store};
use serde::Serialize;

use super::connect;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// What a check found.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// How many units there are.
    pub units: u64,
    /// How many batches there are.
    pub batches: u64,
    /// What is wrong.
    pub violations: Vec<Violation>,
}

/// Runs the command.
pub async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, _) = connect(settings).await?;
    let verdict = check(&*store).await?;
    settings.output.answer(&verdict, || told(&verdict))?;
    Ok(if verdict.ok { ExitCode::Good } else { ExitCode::Error })
}

/// Checks a store.
pub async fn check(store: &dyn Store) -> anyhow::Result<Verdict> {
    let violations = store.verify().await?;
    let totals = store.totals(&Scope::All, &Queues::All).await?;
    let batches = count_batches(store).await?;
    let ok = violations.is_empty();
    Ok(Verdict { ok, units: totals.counts.total(), batches, violations })
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

fn told(verdict: &Verdict) -> String {
    let Verdict { units, batches, violations, .. } = verdict;
    if verdict.ok {
        return format!("ok: {units} units, {batches} batches, counters exact");
    }
    let lines = violations.iter().map(|v| format!("{}: {}", v.rule, v.found));
    let heading = format!("{} violations in {units} units, {batches} batches", violations.len());
    [heading].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}
