//! `usage`: what AI calls came to, in tokens and money. Sums are in `usage/sums.rs`, single calls in
//! `usage/calls.rs`, costs computed anew in `usage/recost.rs`.

mod calls;
mod csv;
mod recost;
mod sums;

use super::{ledger, now};
use crate::args::usage::{Usage as Typed, Verb};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let ledger = ledger(settings).await?;
    if let Some(Verb::Recost(typed)) = &typed.verb {
        recost::run(&*ledger, typed, settings).await?;
        return Ok(ExitCode::Good);
    }
    let filter = typed.which.filter(settings.tenant.clone(), now());
    if let (Some(since), Some(until)) = (filter.since, filter.until)
        && since >= until
    {
        return Err(usage("--since is not before --until")).hint("as --since 7d --until 1d");
    }
    if typed.calls || typed.which.request.is_some() {
        calls::run(&*ledger, &filter, &typed, settings).await?;
    } else {
        sums::run(&*ledger, &filter, &typed, settings).await?;
    }
    Ok(ExitCode::Good)
}
