//! `ai worker`: answers requests from the queue.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use longshore::signals::run_with_signals;
use longshore::store::Queues;
use longshore::{
    ClaimAhead, Kind, Policy, QueueName, RetryPolicy, SystemClock, Worker, WorkerControl,
    WorkerStats,
};
use longshore_ai::worker::{KIND, QUEUE, RequestHandler};
use longshore_ai::{Desk, Gauge, NoPrompts, Pilot, PromptFiles, Prompts};
use longshore_batch::prompts::SqlPrompts;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ai::{AiWorker, InFlight};
use crate::commands::batch::crew::label;
use crate::commands::batch::place::sources;
use crate::commands::worker::tell;
use crate::commands::{Connected, connect_both, patiently};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::inference::{beside, close_books, desk};
use crate::permits;
use crate::settings::{PromptsIn, Settings};

/// What is begun with where nothing else is said.
const IN_FLIGHT: u32 = 32;

/// Runs the command.
pub async fn run(typed: AiWorker, settings: &Settings) -> anyhow::Result<ExitCode> {
    let connected = patiently(settings, || connect_both(settings)).await?;
    let desk = desk(&connected.ledger, settings)?.with_pools(permits::book(settings).await?);
    let gauge = Arc::new(Gauge::default());
    let prompts = prompts(&typed, settings).await?;
    let worker = build(&typed, settings, &connected, &desk, (prompts, &gauge))?;
    let (control, stats) = (worker.control(), worker.stats());
    let running = run_with_signals(worker, typed.drain_timeout.0);
    let ended = tokio::select! {
        ended = running => ended,
        () = beside(&desk, &*connected.store) => return Ok(ExitCode::Good),
        error = clear_on_hangup(&desk) => return Err(error.into()),
        never = steer(&typed, gauge, &control) => match never {},
        never = recycle(&typed, &stats, &control) => match never {},
    };
    let (report, signal) = ended?;
    close_books(&desk).await;
    tell(&report, settings)?;
    let cut_short = signal.is_some() && report.interrupted > 0;
    Ok(if cut_short { ExitCode::Interrupted } else { ExitCode::Good })
}

/// Where prompts are that requests refer to.
async fn prompts(typed: &AiWorker, settings: &Settings) -> anyhow::Result<Arc<dyn Prompts>> {
    let files = typed.prompts.clone().map(PromptsIn::Files);
    match files.as_ref().unwrap_or(&settings.ai.prompts) {
        PromptsIn::Nothing => Ok(Arc::new(NoPrompts)),
        PromptsIn::Files(root) if root.is_dir() => Ok(Arc::new(PromptFiles::new(root))),
        PromptsIn::Files(root) => {
            Err(anyhow!("there is no folder {} with prompts", root.display()))
                .hint("name one by --prompts or ai.prompts_dir; each tenant has a folder in it")
        }
        PromptsIn::Table { database, sql } => {
            let source = sources(&settings.store).resolve(database);
            let source = source.context("in ai.prompts_db").hint("a URL as in batch files")?;
            let prompts = SqlPrompts::new(source, sql.clone()).await;
            let prompts = prompts.context("in ai.prompts_sql");
            Ok(Arc::new(prompts.hint("longshore.reference.toml has an example")?))
        }
    }
}

fn build(
    typed: &AiWorker,
    settings: &Settings,
    connected: &Connected,
    desk: &Desk,
    (prompts, gauge): (Arc<dyn Prompts>, &Arc<Gauge>),
) -> anyhow::Result<Worker> {
    let handler = RequestHandler::new(
        desk.clone(),
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
        InFlight::Auto => typed.most.0,
        InFlight::Fixed(n) => n,
    };
    // The desk has tried again as long as there was time: another run would only be later.
    let policy = Policy { retry: RetryPolicy::never(), max_lost: 5, ..Policy::default() };
    let worker = Worker::builder(Arc::clone(&connected.store))
        .slots(slots)
        .queues(Queues::Named(queues))
        .scope(settings.scope())
        .label(label())
        .ttl(typed.ttl.map_or(settings.worker.ttl, |span| span.0))
        .until_idle(typed.until_idle)
        .retention(settings.retention)
        .claim_ahead(ClaimAhead::Adaptive)
        .handle_erased(Kind::new(KIND)?, policy, Arc::new(handler))
        .build()?;
    if typed.in_flight == InFlight::Auto {
        worker.control().resize(IN_FLIGHT.min(slots));
    }
    Ok(worker)
}

async fn clear_on_hangup(desk: &Desk) -> std::io::Error {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return error,
    };
    while hangup.recv().await.is_some() {
        tracing::info!("profiles and keys are read anew");
        desk.clear();
    }
    std::future::pending().await
}

async fn steer(typed: &AiWorker, gauge: Arc<Gauge>, control: &WorkerControl) -> Infallible {
    if typed.in_flight == InFlight::Auto {
        Pilot::new(gauge).steer(control, IN_FLIGHT, typed.most.0).await;
    }
    std::future::pending().await
}

/// Drains after so many requests.
async fn recycle(typed: &AiWorker, stats: &WorkerStats, control: &WorkerControl) -> Infallible {
    let Some(most) = typed.recycle_after else { return std::future::pending().await };
    while stats.ran() < most {
        tokio::time::sleep(LOOK).await;
    }
    tracing::info!(most, "has answered as many requests as it should");
    control.drain();
    std::future::pending().await
}

/// Between two looks at how many requests were answered.
const LOOK: Duration = Duration::from_millis(100);
