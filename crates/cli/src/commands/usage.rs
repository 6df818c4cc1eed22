//! `usage`: reports tokens and cost of AI calls. Sums are in `usage/totals.rs`, single calls in
//! `usage/calls.rs`, recomputed costs in `usage/recost.rs`.

mod calls;
mod csv;
mod recost;
mod totals;

use longshore::accounts::{Usage, UsageFilter};
use longshore_web::client::ApiClient;

use super::{ledger, now};
use crate::args::usage::{UsageArgs as Typed, UsageCommand};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(server) = &settings.server {
        return run_through_server(server, &typed, settings).await;
    }
    let ledger = ledger(settings).await?;
    if let Some(UsageCommand::Recost(typed)) = &typed.command {
        recost::run(&*ledger, typed, settings).await?;
        return Ok(ExitCode::Good);
    }
    let filter = filter(&typed, settings)?;
    if typed.calls || typed.which.request.is_some() {
        calls::run(&*ledger, &filter, &typed, settings).await?;
    } else {
        let sums = ledger.usage(&settings.scope(), &filter, typed.by.group()).await?;
        totals::show(&sums, &typed, settings)?;
    }
    Ok(ExitCode::Good)
}

fn filter(typed: &Typed, settings: &Settings) -> anyhow::Result<UsageFilter> {
    let filter = typed.which.filter(settings.tenant.clone(), now());
    if let (Some(since), Some(until)) = (filter.since, filter.until)
        && since >= until
    {
        return Err(usage("--since is not before --until")).hint("as --since 7d --until 1d");
    }
    Ok(filter)
}

/// Reports through a server, which returns sums only.
async fn run_through_server(
    server: &ApiClient,
    typed: &Typed,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if typed.calls || typed.which.request.is_some() {
        return Err(usage("a server does not return single calls"))
            .hint("leave out --calls and --request, or run it where the store is, with --store");
    }
    let shown = server.usage(&filter(typed, settings)?, typed.by.group()).await?;
    let sums: Vec<Usage> = shown.into_iter().map(|shown| shown.usage).collect();
    totals::show(&sums, typed, settings)?;
    Ok(ExitCode::Good)
}
