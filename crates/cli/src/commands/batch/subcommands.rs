//! The subcommands of `batch`.

use std::collections::HashSet;

use longshore::batch::BatchAction;
use longshore::{Batch, BatchId, Client};
use longshore_dispatch::request::ArrayAction;
use serde::Serialize;

use super::batch_json::BatchSummary;
use super::context::connect_to_batch;
use super::{
    cat, compare, drain, provider_batch, rebind, recover, report, rows, run_file, start, status, update,
};
use crate::args::batch::{BatchCommand as Typed, BatchNameArg, BatchTarget};
use crate::commands::dispatch::arrays;
use crate::commands::names::{NameLookup, use_environment};
use crate::commands::watch;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(mut typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    find_names(&mut typed, settings).await?;
    let (batch, action) = match typed {
        Typed::Run(typed) => return run_file(*typed, settings).await,
        Typed::Start(typed) => return start(*typed, settings).await,
        Typed::Update(typed) => return update::run(&typed, settings).await,
        Typed::Recover { names } => return recover::run(names, settings).await,
        Typed::Rebind(batch) => return rebind::run(&batch.name, settings).await,
        Typed::List { status, page, pool } => return status::list(status, &page, &pool, settings).await,
        Typed::Status(batch) => return status::show(&batch.batch.name, &batch.pool, settings).await,
        Typed::Watch { batch: BatchTarget { batch: BatchNameArg { name }, pool }, limit } => {
            let limit = limit.map(|span| span.0);
            if let Some(folder) = &pool.dir {
                return watch::run_in_pool(folder, &name, limit, settings).await;
            }
            let (_, client) = connect_to_batch(&name, settings).await?;
            return watch::run(&client, &name, limit, settings).await;
        }
        Typed::Drain { batch: BatchTarget { batch: BatchNameArg { name }, pool }, limit } => {
            let limit = limit.map(|span| span.0);
            if let Some(folder) = &pool.dir {
                return drain::run_in_pool(folder, &name, limit, settings).await;
            }
            let (_, client) = connect_to_batch(&name, settings).await?;
            return drain::run(&client, &name, limit, settings).await;
        }
        Typed::Cat(typed) => return cat::run(&typed, settings).await,
        Typed::Compare(typed) => return compare::run(typed, settings).await,
        Typed::Rows(typed) => return rows::run(*typed, settings).await,
        Typed::Report { batch: BatchTarget { batch: BatchNameArg { name }, pool }, html, output } => {
            return report::run(&name, &pool, html, output.as_deref(), settings).await;
        }
        Typed::Pause { batch, reason } => (batch, ArrayAction::Pause { reason }),
        Typed::Resume(batch) => (batch, ArrayAction::Resume),
        Typed::Cancel(batch) => (batch, ArrayAction::Cancel),
        // With or without --failed: nothing else can be retried.
        Typed::Retry { batch, failed: _ } => (batch, ArrayAction::Retry),
    };
    let name = batch.batch.name;
    if let Some(folder) = &batch.pool.dir {
        let array = arrays::apply(folder, &name, Some(action), settings).await?;
        return print_status(&array, settings);
    }
    let action = match action {
        ArrayAction::Pause { reason } => BatchAction::Pause { reason },
        ArrayAction::Resume => BatchAction::Resume,
        ArrayAction::Cancel => BatchAction::Cancel,
        ArrayAction::Retry => BatchAction::RetryFailed,
    };
    let (_, client) = connect_to_batch(&name, settings).await?;
    operate(&client, &name, action, settings).await
}

/// Replaces numbers and `last` by the names of the batches.
async fn find_names(typed: &mut Typed, settings: &Settings) -> anyhow::Result<()> {
    let (names, pool): (Vec<&mut BatchId>, _) = match typed {
        Typed::Status(batch)
        | Typed::Watch { batch, .. }
        | Typed::Pause { batch, .. }
        | Typed::Resume(batch)
        | Typed::Drain { batch, .. }
        | Typed::Cancel(batch)
        | Typed::Retry { batch, .. }
        | Typed::Report { batch, .. } => (vec![&mut batch.batch.name], Some(&mut batch.pool)),
        Typed::Rows(rows) => (vec![&mut rows.batch.batch.name], Some(&mut rows.batch.pool)),
        Typed::List { pool, .. } => (Vec::new(), Some(pool)),
        Typed::Recover { names } => (names.iter_mut().collect(), None),
        Typed::Rebind(batch) => (vec![&mut batch.name], None),
        Typed::Update(update) => (vec![&mut update.batch.name], None),
        Typed::Compare(compare) => (vec![&mut compare.a, &mut compare.b], None),
        Typed::Run(_) | Typed::Start(_) | Typed::Cat(_) => return Ok(()),
    };
    let folder = pool.and_then(|pool| {
        use_environment(pool, settings);
        pool.dir.clone()
    });
    let mut lookup = NameLookup::new(folder.as_deref(), settings);
    for name in names {
        *name = lookup.batch(name).await?;
    }
    Ok(())
}

/// Whether the command handles SIGTERM and SIGINT itself instead of being dropped.
pub fn handles_signals(typed: &Typed) -> bool {
    matches!(typed, Typed::Run(_) | Typed::Start(_) | Typed::Recover { .. })
}

async fn operate(
    client: &Client,
    name: &BatchId,
    action: BatchAction,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let cancels = action == BatchAction::Cancel;
    if action == BatchAction::RetryFailed {
        return retry(client, name, settings).await;
    }
    let batch = client.store().apply_batch_action(client.scope(), name, action).await?;
    if cancels {
        // The worker cancels the provider's batch now, and not at its next poll.
        let woken = provider_batch::wake(&**client.store(), client.scope(), &HashSet::from([name])).await;
        woken.inspect_err(|error| tracing::debug!(%error, "cannot wake the units of provider batches")).ok();
    }
    print_status(&batch, settings)
}

/// The answer to a retry.
#[derive(Serialize)]
struct RetryResult<'a> {
    #[serde(flatten)]
    batch: BatchSummary<'a>,
    /// How many units run again.
    retried: u64,
}

/// Retries the failed units, and says what became of the others.
async fn retry(client: &Client, name: &BatchId, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, scope) = (client.store(), client.scope());
    let before = store.batch(scope, name).await?;
    let batch = store.apply_batch_action(scope, name, BatchAction::RetryFailed).await?;
    // The rest of many failures is retried in the background.
    let retried = before.counts.failed;
    let cancelled = match batch.counts.cancelled {
        0 => String::new(),
        count => format!("; {count} cancelled units stay cancelled"),
    };
    let result = RetryResult { batch: BatchSummary::of(&batch), retried };
    let did = if retried == 0 {
        "has no failed units: nothing is retried".to_owned()
    } else {
        format!("is {}: {retried} failed units run again", batch.status)
    };
    settings.output.answer(&result, || format!("batch `{name}` {did}{cancelled}"))?;
    if retried == 0 && !cancelled.is_empty() {
        settings
            .output
            .note("hint: a cancelled batch is not resumed; `longshore unit retry ID` runs one of its units");
    }
    Ok(ExitCode::Good)
}

fn print_status(batch: &Batch, settings: &Settings) -> anyhow::Result<ExitCode> {
    let words = || format!("batch `{}` is {}", batch.id, batch.status);
    settings.output.answer(&BatchSummary::of(batch), words)?;
    Ok(ExitCode::Good)
}
