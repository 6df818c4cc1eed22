//! `batch drain`: nothing of a batch is begun any more, and what runs is waited for.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::services::{Elector, Reclaimer, serve};
use longshore::{Batch, BatchId, BatchStatus, Client, SessionId};
use longshore_dispatch::request::ArrayAction;
use tokio::time::Instant;

use super::Summary;
use crate::commands::dispatch::arrays::Watched;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// How long a change is waited for before we look all the same.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the command.
pub async fn run(
    client: &Client,
    name: &BatchId,
    limit: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (store, scope) = (client.store(), client.scope());
    let reason = "drained".to_owned();
    let paused = store.operate_batch(scope, name, BatchAction::Pause { reason }).await?;
    let bar = settings.output.bar("{prefix}  {msg}");
    bar.set_prefix(name.to_string());
    let waiting = at_rest(client, paused, |left| bar.set_message(words(left)));
    let batch = match settings.server {
        // A server does its store's upkeep.
        Some(_) => in_time(name, limit, waiting).await?,
        None => in_time(name, limit, tended(client, waiting)).await?,
    };
    bar.finish_and_clear();
    said(&batch, settings)
}

/// The same for an array of a pool.
pub async fn run_in(
    folder: &Path,
    name: &BatchId,
    limit: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let mut watched = Watched::of(folder, name, settings).await?;
    let reason = "drained".to_owned();
    watched.steer(Some(ArrayAction::Pause { reason })).await?;
    let bar = settings.output.bar("{prefix}  {msg}");
    bar.set_prefix(name.to_string());
    let on_change = |array: &Batch| {
        bar.set_message(words(array.counts.leased));
        Ok(())
    };
    let array = in_time(name, limit, watched.until(is_at_rest, on_change)).await?;
    bar.finish_and_clear();
    said(&array, settings)
}

async fn in_time(
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

fn said(batch: &Batch, settings: &Settings) -> anyhow::Result<ExitCode> {
    settings.output.answer(&Summary::of(batch), || {
        format!("batch `{}` is {} and nothing of it runs", batch.id, batch.status)
    })?;
    Ok(ExitCode::Good)
}

/// Whether nothing of it runs, and nobody has let it go on.
fn is_at_rest(batch: &Batch) -> anyhow::Result<bool> {
    if matches!(batch.status, BatchStatus::Running | BatchStatus::Queued) {
        return Err(anyhow::anyhow!("batch `{}` was resumed by somebody", batch.id));
    }
    Ok(batch.counts.leased == 0)
}

fn words(left: u64) -> String {
    format!("{left} still run")
}

/// Takes units back from dead workers while something is waited for: with the last worker, whoever
/// did that may be gone as well.
async fn tended<T>(client: &Client, waiting: impl Future<Output = T>) -> T {
    let (store, me) = (client.store(), SessionId::new());
    // A role of its own: whoever has the workers' does all their upkeep, and we do one part of it.
    let (elector, leads) = Elector::new(Arc::clone(store), "drain");
    let never = async {
        tokio::join!(elector.stand(|| Some(me)), serve(Reclaimer::new(Arc::clone(store)), leads));
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        waited = waiting => waited,
        never = never => match never {},
    }
}

/// Waits until nothing of a batch is leased.
async fn at_rest(
    client: &Client,
    mut batch: Batch,
    mut on_change: impl FnMut(u64),
) -> anyhow::Result<Batch> {
    let (store, scope) = (client.store(), client.scope());
    let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
    loop {
        batch = store.batch(scope, &batch.id).await?;
        if is_at_rest(&batch)? {
            return Ok(batch);
        }
        on_change(batch.counts.leased);
        cursor = store.changes(scope, cursor, LOOK).await?.cursor;
    }
}
