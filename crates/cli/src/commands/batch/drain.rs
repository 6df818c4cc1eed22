//! `batch drain`: nothing of a batch is begun any more, and what runs is waited for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::services::{Elector, Reclaimer, serve};
use longshore::{Batch, BatchId, BatchStatus, Client, SessionId};
use tokio::time::Instant;

use super::Summary;
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
    let waiting = tended(client, at_rest(client, paused, |left| bar.set_message(words(left))));
    let batch = match limit {
        None => waiting.await?,
        Some(limit) => {
            let waited = tokio::time::timeout_at(Instant::now() + limit, waiting).await;
            let late = || format!("batch `{name}` still has running units after {limit:?}");
            let hint = "it stays paused; what runs goes on to its end";
            waited.map_err(|_| anyhow::anyhow!(late())).hint(hint)??
        }
    };
    bar.finish_and_clear();
    settings.output.answer(&Summary::of(&batch), || {
        format!("batch `{name}` is {} and nothing of it runs", batch.status)
    })?;
    Ok(ExitCode::Good)
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
        let resumed = matches!(batch.status, BatchStatus::Running | BatchStatus::Queued);
        if resumed {
            return Err(anyhow::anyhow!("batch `{}` was resumed by somebody", batch.id));
        }
        if batch.counts.leased == 0 {
            return Ok(batch);
        }
        on_change(batch.counts.leased);
        cursor = store.changes(scope, cursor, LOOK).await?.cursor;
    }
}
