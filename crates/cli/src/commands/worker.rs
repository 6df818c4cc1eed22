//! `worker`: claims units and runs them until drained, stopped or out of work.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use longshore::signals::run_with_signals;
use longshore::store::Queues;
use longshore::{
    ClaimAhead, Kind, Policy, PoolBook, RetryPolicy, Store, Worker as Engine, WorkerBuilder,
    WorkerControl, WorkerReport, WorkerStats,
};
use longshore_batch::definition::{BULK_KIND, END_KIND, ROW_KIND};
use longshore_batch::{BulkHandler, Lookout};

use super::batch::crew::{Handlers, end_policy, label};
use super::batch::lookout::beside;
use super::batch::place::{commands, sources};
use super::chaos::{self, ChaosHandler};
use super::{Connected, connect_both, patiently, worker_remote};
use crate::actions::Actions;
use crate::args::resource;
use crate::args::worker::Worker;
use crate::batch_start::{self, BatchStartHandler};
use crate::error::{WithHint, usage};
use crate::exec::{self, ExecHandler};
use crate::exit::ExitCode;
use crate::http::call::Caller;
use crate::http::{self, HttpHandler};
use crate::inference;
use crate::mail::LazyOffice;
use crate::permits;
use crate::pools::Pools;
use crate::settings::Settings;

/// How long commands may take to end in good order.
const CLOSING: Duration = Duration::from_secs(5);
/// How often runs are counted.
const COUNT: Duration = Duration::from_millis(200);

/// Runs the command.
pub async fn run(typed: Worker, settings: &Settings) -> anyhow::Result<ExitCode> {
    if typed.remote.server.is_some() {
        return worker_remote::run(typed, settings).await;
    }
    let Connected { store, ledger, .. } = patiently(settings, || connect_both(settings)).await?;
    let book = permits::book(settings).await?;
    let desk = inference::desk(&ledger, settings)?.with_pools(book.clone());
    let drain = typed.drain_timeout.map_or(settings.worker.drain_timeout, |span| span.0);
    let dir = typed.exec_dir.clone().unwrap_or_else(|| settings.worker.exec_dir.clone());
    let caller = Caller::new(Arc::clone(&settings.http.rules));
    let actions = Arc::new(Actions::new(dir, caller.clone()));
    let (sources, commands) = (sources(&settings.store), commands(settings));
    let batches = {
        let (actions, office) = (Arc::clone(&actions), Arc::new(LazyOffice::new(settings)));
        Handlers::new(&sources, &commands, actions, desk.clone(), office)
    };
    let http = HttpHandler::new(caller, settings.http.env.clone());
    let slots = typed.slots.unwrap_or(settings.worker.slots);
    let pools = Pools::open(&settings.pools, wanted(&typed, settings), slots).await?;
    let own = Own { batches, http, pools: &pools, book: &book };
    let most = typed.max_units;
    let worker = build(typed, settings, Arc::clone(&store), own)?;
    let lookout = Lookout::new(Arc::clone(&store), settings.scope(), sources, actions);
    let retire = retire(worker.control(), worker.stats(), most);
    let (report, signal) = tokio::select! {
        ended = beside(run_with_signals(worker, drain), Arc::clone(&store), lookout) => ended?,
        () = inference::beside(&desk, &*store) => return Ok(ExitCode::Good),
        never = retire => match never {},
    };
    inference::close_books(&desk).await;
    tokio::join!(pools.close(), commands.close(CLOSING));
    tell(&report, settings)?;
    if report.left > 0 {
        anyhow::bail!(
            "the end of {} units could not be recorded; they will run again",
            report.left
        );
    }
    let cut_short = signal.is_some() && report.interrupted > 0;
    Ok(if cut_short { ExitCode::Interrupted } else { ExitCode::Good })
}

/// Drains the worker once it has run so many units.
async fn retire(control: WorkerControl, stats: Arc<WorkerStats>, most: Option<u64>) -> Infallible {
    let Some(most) = most else { return std::future::pending().await };
    while stats.ran() < most {
        tokio::time::sleep(COUNT).await;
    }
    control.drain();
    std::future::pending().await
}

pub fn tell(report: &WorkerReport, settings: &Settings) -> anyhow::Result<()> {
    if settings.output.is_json() {
        return settings.output.json(report);
    }
    let WorkerReport { done, failed, cancelled, retried, .. } = report;
    let words = format!("{done} done, {failed} failed, {cancelled} cancelled, {retried} retried");
    settings.output.note(words);
    Ok(())
}

/// Handlers that were made before the worker.
struct Own<'a> {
    batches: Handlers,
    http: HttpHandler,
    pools: &'a Pools,
    book: &'a PoolBook,
}

/// The kinds that are wanted; none means all.
fn wanted<'a>(typed: &'a Worker, settings: &'a Settings) -> &'a [Kind] {
    if typed.kind.is_empty() { &settings.worker.kinds } else { &typed.kind }
}

fn build(
    typed: Worker,
    settings: &Settings,
    store: Arc<dyn Store>,
    Own { batches, http, pools, book }: Own<'_>,
) -> anyhow::Result<Engine> {
    let (defaults, wanted) = (&settings.worker, wanted(&typed, settings).to_vec());
    let queues = if typed.queue.is_empty() { defaults.queues.clone() } else { typed.queue };
    let queues = if queues.is_empty() { Queues::All } else { Queues::Named(queues) };
    let starts = BatchStartHandler::new(Arc::clone(&store), settings);
    let mut builder = Engine::builder(store)
        .slots(typed.slots.unwrap_or(defaults.slots))
        .resources(resource::sum_up(&typed.resource)?)
        .queues(queues)
        .scope(settings.scope())
        .label(label())
        .ttl(typed.ttl.map_or(defaults.ttl, |span| span.0))
        .until_idle(typed.until_idle)
        .retention(settings.retention)
        .claim_ahead(ClaimAhead::Adaptive);
    if let Some(batch) = typed.batch {
        builder = builder.batch(batch);
    }
    let dir = typed.exec_dir.unwrap_or_else(|| defaults.exec_dir.clone());
    let exec = ExecHandler::new(dir);
    let mut built_in = BuiltIn { exec, http, batches, starts, pools, book, chaos: None };
    if let Some(log) = typed.chaos_log {
        built_in.chaos = Some(ChaosHandler::open(&log)?);
    }
    builder = built_in.register(builder, &wanted)?;
    // After those of worker processes: what is said of a kind is nearer than what is said of all.
    for (kind, name) in &defaults.pools {
        if let Some(pool) = book.find(name) {
            builder = builder.hold(kind.clone(), pool.clone());
        }
    }
    Ok(builder.build()?)
}

/// The handlers that this binary has, and those of its worker processes.
struct BuiltIn<'a> {
    exec: ExecHandler,
    http: HttpHandler,
    batches: Handlers,
    starts: BatchStartHandler,
    pools: &'a Pools,
    book: &'a PoolBook,
    chaos: Option<ChaosHandler>,
}

impl BuiltIn<'_> {
    /// Registers those that are wanted, or all.
    fn register(self, mut to: WorkerBuilder, wanted: &[Kind]) -> anyhow::Result<WorkerBuilder> {
        let (exec_kind, chaos_kind) = (Kind::new(exec::KIND)?, Kind::new(chaos::KIND)?);
        let http_kind = Kind::new(http::KIND)?;
        let (row_kind, end_kind) = (Kind::new(ROW_KIND)?, Kind::new(END_KIND)?);
        let bulk_kind = Kind::new(BULK_KIND)?;
        let start_kind = Kind::new(batch_start::KIND)?;
        let is_ours = |kind: &Kind| {
            [&exec_kind, &http_kind, &row_kind, &bulk_kind, &end_kind, &start_kind].contains(&kind)
                || (*kind == chaos_kind && self.chaos.is_some())
        };
        if let Some(twice) = self.pools.kinds().find(|kind| is_ours(kind)) {
            return Err(usage(format!("kind `{twice}` is built in, and a worker process has it")))
                .hint("name its other operations in `kinds`, or rename this one");
        }
        let has = |kind: &Kind| is_ours(kind) || self.pools.kinds().any(|own| own == kind);
        if let Some(unknown) = wanted.iter().find(|kind| !has(kind)) {
            let batches = format!("`{start_kind}`, `{row_kind}`, `{bulk_kind}` and `{end_kind}`");
            let known = format!("`{exec_kind}`, `{http_kind}`, {batches}");
            return Err(usage(format!("this worker has no handler for kind `{unknown}`"))).hint(
                format!(
                    "built in are {known}; other kinds need a worker process ([workers.NAME]) or \
                     their own program"
                ),
            );
        }
        to = self.pools.register(to, wanted, self.book);
        let wants = |kind: &Kind| wanted.is_empty() || wanted.contains(kind);
        if wants(&exec_kind) {
            // A command may have done half its work: it is repeated only by request.
            let policy = Policy { retry: RetryPolicy::never(), ..Policy::default() };
            to = to.handle(exec_kind, policy, self.exec);
        }
        if wants(&http_kind) {
            // A call that is repeated carries the same key, so the server can tell.
            to = to.handle(http_kind, Policy::default(), self.http);
        }
        // Whoever takes rows takes their questions to the provider, or nobody might.
        if wants(&row_kind) || wants(&bulk_kind) {
            to = to.handle(bulk_kind, BulkHandler::policy(), self.batches.bulk);
        }
        if wants(&row_kind) {
            to = to.handle(row_kind, Policy::default(), self.batches.rows);
        }
        if wants(&start_kind) {
            // The batch has the unit's name for it, so a repeat goes on where it was.
            to = to.handle(start_kind, Policy::default(), self.starts);
        }
        if wants(&end_kind) {
            to = to.handle(end_kind, end_policy(), self.batches.ends);
        }
        if let Some(handler) = self.chaos.filter(|_| wants(&chaos_kind)) {
            // A storm may lose a unit many times without the unit being to blame.
            let policy = Policy { max_lost: u32::MAX, ..Policy::default() };
            to = to.handle(chaos_kind, policy, handler);
        }
        Ok(to)
    }
}
