//! `batch drain`: pauses a batch and waits for its running units.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::services::{Elector, Rescuer, run_service};
use longshore::{Batch, BatchId, BatchStatus, Client, LogAlertSink, SessionId};
use longshore_dispatch::request::ArrayAction;
use tokio::time::Instant;

use super::BatchSummary;
use crate::commands::dispatch::arrays::ArrayClient;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// The longest wait for a change before the batch is read again.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the command.
pub async fn run(
    client: &Client,
    name: &BatchId,
    limit: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (store, scope) = (client.store(), client.scope());
    let reason = "drained".to_owned();
    let paused = store.apply_batch_action(scope, name, BatchAction::Pause { reason }).await?;
    let bar = settings.output.bar("{prefix}  {msg}");
    bar.set_prefix(name.to_string());
    let waiting = wait_until_drained(client, paused, |left| bar.set_message(progress_text(left)));
    let batch = match settings.server {
        // The server reclaims units itself.
        Some(_) => with_limit(name, limit, waiting).await?,
        None => with_limit(name, limit, with_reclaimer(client, waiting)).await?,
    };
    bar.finish_and_clear();
    print_result(&batch, settings)
}

/// Drains an array of a pool.
pub async fn run_in_pool(
    folder: &Path,
    name: &BatchId,
    limit: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let mut array_client = ArrayClient::of(folder, name, settings).await?;
    let reason = "drained".to_owned();
    array_client.apply(Some(ArrayAction::Pause { reason })).await?;
    let bar = settings.output.bar("{prefix}  {msg}");
    bar.set_prefix(name.to_string());
    let on_change = |array: &Batch| {
        bar.set_message(progress_text(array.counts.leased));
        Ok(())
    };
    let array = with_limit(name, limit, array_client.wait_until(is_drained, on_change)).await?;
    bar.finish_and_clear();
    print_result(&array, settings)
}

async fn with_limit(
    name: &BatchId,
    limit: Option<Duration>,
    waiting: impl Future<Output = anyhow::Result<Batch>>,
) -> anyhow::Result<Batch> {
    let Some(limit) = limit else { return waiting.await };
    let waited = tokio::time::timeout_at(Instant::now() + limit, waiting).await;
    let late = || format!("batch `{name}` still has running units after {limit:?}");
    let hint = "it stays paused; what runs goes on to its end";
    waited.map_err(|_| anyhow::anyhow!(late())).hint(hint)?
}

fn print_result(batch: &Batch, settings: &Settings) -> anyhow::Result<ExitCode> {
    settings.output.answer(&BatchSummary::of(batch), || {
        format!("batch `{}` is {} and none of its units runs", batch.id, batch.status)
    })?;
    Ok(ExitCode::Good)
}

/// Whether no unit runs. An error if the batch was resumed meanwhile.
fn is_drained(batch: &Batch) -> anyhow::Result<bool> {
    if matches!(batch.status, BatchStatus::Running | BatchStatus::Queued) {
        return Err(anyhow::anyhow!("batch `{}` was resumed meanwhile", batch.id));
    }
    Ok(batch.counts.leased == 0)
}

fn progress_text(left: u64) -> String {
    format!("{left} still run")
}

/// Reclaims units from dead workers while `waiting` runs: the last worker may be gone, and with it
/// the service that does this.
async fn with_reclaimer<T>(client: &Client, waiting: impl Future<Output = T>) -> T {
    let (store, me) = (client.store(), SessionId::new());
    // A role of its own: the leader of the workers' role does all maintenance, this process only
    // one part.
    let (elector, leads) = Elector::new(Arc::clone(store), "drain");
    let rescuer = Rescuer::new(Arc::clone(store));
    let never = async {
        tokio::join!(elector.campaign(|| Some(me)), run_service(rescuer, leads, Arc::new(LogAlertSink)));
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        waited = waiting => waited,
        never = never => match never {},
    }
}

/// Waits until no unit of a batch is leased.
async fn wait_until_drained(
    client: &Client,
    mut batch: Batch,
    mut on_change: impl FnMut(u64),
) -> anyhow::Result<Batch> {
    let (store, scope) = (client.store(), client.scope());
    let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
    loop {
        batch = store.batch(scope, &batch.id).await?;
        if is_drained(&batch)? {
            return Ok(batch);
        }
        on_change(batch.counts.leased);
        cursor = store.changes(scope, cursor, POLL_INTERVAL).await?.cursor;
    }
}
