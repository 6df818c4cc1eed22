//! `ai worker`: answers requests from the queue.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use longshore::signals::run_with_signals;
use longshore::store::Queues;
use longshore::{
    Kind, Policy, Prefetch, QueueName, RetryPolicy, SystemClock, Worker, WorkerControl, WorkerStats,
};
use longshore_ai::worker::{KIND, QUEUE, RequestHandler};
use longshore_ai::{AdaptiveConcurrency, Gauge, Inference, NoPrompts, PromptFiles, Prompts};
use longshore_batch::prompt_lookup::SqlPrompts;
use tokio::signal::unix::{SignalKind, signal};

use crate::alert_sinks::AlertSinks;
use crate::args::ai::{AiWorkerArgs, InFlightLimit};
use crate::commands::batch::context::sources;
use crate::commands::batch::handlers::label;
use crate::commands::worker::print_report;
use crate::commands::{StoreHandles, connect_with_ledger, retry_while_unavailable};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::inference::{flush, open_inference, run_background};
use crate::semaphore_backend;
use crate::settings::{PromptSource, Settings};

/// Requests in flight at the start, in `auto` mode.
const INITIAL_IN_FLIGHT: u32 = 32;

/// Runs the command.
pub async fn run(typed: AiWorkerArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let connected = retry_while_unavailable(settings, || connect_with_ledger(settings)).await?;
    let inference =
        open_inference(&connected.ledger, settings)?.with_pools(semaphore_backend::registry(settings).await?);
    let gauge = Arc::new(Gauge::default());
    let prompts = prompts(&typed, settings).await?;
    let worker = build(&typed, settings, &connected, &inference, (prompts, &gauge))?;
    let (control, stats) = (worker.control(), worker.stats());
    let running = run_with_signals(worker, typed.drain_timeout.0);
    let ended = tokio::select! {
        ended = running => ended,
        () = run_background(&inference, &*connected.store) => return Ok(ExitCode::Good),
        error = reload_on_hangup(&inference) => return Err(error.into()),
        never = adapt_in_flight(&typed, gauge, &control) => match never {},
        never = drain_after_limit(&typed, &stats, &control) => match never {},
    };
    let (report, signal) = ended?;
    flush(&inference).await;
    print_report(&report, settings)?;
    let cut_short = signal.is_some() && report.interrupted > 0;
    Ok(if cut_short { ExitCode::Interrupted } else { ExitCode::Good })
}

/// Where the prompts are that requests refer to.
async fn prompts(typed: &AiWorkerArgs, settings: &Settings) -> anyhow::Result<Arc<dyn Prompts>> {
    let files = typed.prompts.clone().map(PromptSource::Files);
    match files.as_ref().unwrap_or(&settings.ai.prompts) {
        PromptSource::Nothing => Ok(Arc::new(NoPrompts)),
        PromptSource::Files(root) if root.is_dir() => Ok(Arc::new(PromptFiles::new(root))),
        PromptSource::Files(root) => Err(anyhow!("there is no folder {} with prompts", root.display()))
            .hint("name one by --prompts or ai.prompts_dir; each tenant has a folder in it"),
        PromptSource::Table { database, sql } => {
            let source = sources(&settings.store, settings)?.resolve(database);
            let source = source.context("in ai.prompts_db").hint("a URL as in batch files")?;
            let prompts = SqlPrompts::new(source, sql.clone()).await;
            let prompts = prompts.context("in ai.prompts_sql");
            Ok(Arc::new(prompts.hint("longshore.reference.toml has an example")?))
        }
    }
}

fn build(
    typed: &AiWorkerArgs,
    settings: &Settings,
    connected: &StoreHandles,
    inference: &Inference,
    (prompts, gauge): (Arc<dyn Prompts>, &Arc<Gauge>),
) -> anyhow::Result<Worker> {
    let handler = RequestHandler::new(
        inference.clone(),
        Arc::clone(&connected.ledger),
        settings.ai.libraries.clone(),
        prompts,
        Arc::new(SystemClock),
    );
    let handler = handler.with_gauge(Arc::clone(gauge));
    let queues = match typed.queue.as_slice() {
        [] => vec![QueueName::new(QUEUE)?],
        named => named.to_vec(),
    };
    let slots = match typed.in_flight {
        InFlightLimit::Auto => typed.max_in_flight.0,
        InFlightLimit::Fixed(n) => n,
    };
    // Inference has already retried until the deadline: another run would only be later.
    let policy = Policy { retry: RetryPolicy::never(), max_lost: 5, ..Policy::default() };
    let worker = Worker::builder(Arc::clone(&connected.store))
        .immediate_takeover(true)
        .slots(slots)
        .queues(Queues::Named(queues))
        .scope(settings.scope())
        .label(label())
        .ttl(typed.ttl.map_or(settings.worker.ttl, |span| span.0))
        .until_idle(typed.until_idle)
        .retention(settings.retention)
        .alert_sink(AlertSinks::open(&settings.alerts)?)
        .prefetch(Prefetch::Adaptive)
        .handle_erased(Kind::new(KIND)?, policy, Arc::new(handler))
        .build()?;
    if typed.in_flight == InFlightLimit::Auto {
        worker.control().resize(INITIAL_IN_FLIGHT.min(slots));
    }
    Ok(worker)
}

async fn reload_on_hangup(inference: &Inference) -> std::io::Error {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return error,
    };
    while hangup.recv().await.is_some() {
        tracing::info!("reloading profiles and keys");
        inference.clear_cache();
    }
    std::future::pending().await
}

async fn adapt_in_flight(typed: &AiWorkerArgs, gauge: Arc<Gauge>, control: &WorkerControl) -> Infallible {
    if typed.in_flight == InFlightLimit::Auto {
        AdaptiveConcurrency::new(gauge).run(control, INITIAL_IN_FLIGHT, typed.max_in_flight.0).await;
    }
    std::future::pending().await
}

/// Drains after `recycle_after` requests.
async fn drain_after_limit(typed: &AiWorkerArgs, stats: &WorkerStats, control: &WorkerControl) -> Infallible {
    let Some(max) = typed.recycle_after else { return std::future::pending().await };
    while stats.ran() < max {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    tracing::info!(max, "draining: the limit of --recycle-after is reached");
    control.drain();
    std::future::pending().await
}

/// The interval between two reads of the request count.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
