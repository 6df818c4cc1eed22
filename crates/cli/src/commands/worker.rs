//! `worker`: claims units and runs them until drained, stopped or out of work.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use longshore::signals::run_with_signals;
use longshore::store::Queues;
use longshore::{
    Kind, Policy, PoolRegistry, Prefetch, RetryPolicy, Store, Worker as EngineWorker, WorkerBuilder,
    WorkerControl, WorkerReport, WorkerStats,
};
use longshore_batch::definition::{COMPLETION_KIND, PROVIDER_BATCH_KIND, ROW_KIND};
use longshore_batch::{AlertMonitor, ProviderBatchHandler};

use super::batch::context::{commands, sources};
use super::batch::handlers::{BatchHandlers, completion_policy, label, pages};
use super::batch::stall_monitor::run_with_monitor;
use super::chaos::{self, ChaosHandler};
use super::{StoreHandles, connect_with_ledger, retry_while_unavailable, worker_remote};
use crate::alert_sinks::AlertSinks;
use crate::args::resource;
use crate::args::worker::WorkerArgs;
use crate::batch_hooks::BatchHooks;
use crate::batch_start::{self, BatchStartHandler};
use crate::config::WorkerConfig;
use crate::env;
use crate::error::{WithHint, usage};
use crate::exec::run::CommandSettings;
use crate::exec::{self, ExecHandler, OsUser};
use crate::exit::ExitCode;
use crate::external_workers::ExternalWorkers;
use crate::http::client::HttpClient;
use crate::http::{self, HttpHandler};
use crate::inference;
use crate::mail::LazyMailSpool;
use crate::semaphore_backend;
use crate::settings::Settings;

/// How long commands may take to shut down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two reads of the unit count.
const COUNT_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command.
pub async fn run(typed: WorkerArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    if typed.remote.server.is_some() {
        return worker_remote::run(typed, settings).await;
    }
    let StoreHandles { store, ledger, .. } =
        retry_while_unavailable(settings, || connect_with_ledger(settings)).await?;
    let registry = semaphore_backend::registry(settings).await?;
    let inference = inference::open_inference(&ledger, settings)?.with_pools(registry.clone());
    let drain = typed.drain_timeout.map_or(settings.worker.drain_timeout, |span| span.0);
    let dir = typed.exec_dir.clone().unwrap_or_else(|| settings.worker.exec_dir.clone());
    let caller = HttpClient::new(settings.http.rules());
    let office = Arc::new(LazyMailSpool::new(settings));
    let actions = Arc::new(BatchHooks::new(dir, caller.clone(), office.clone()));
    let (sources, commands) = (sources(&settings.store, settings)?, commands(settings));
    let batches = {
        let (actions, pages) = (Arc::clone(&actions), pages(settings));
        BatchHandlers::new(&sources, &commands, actions, inference.clone(), office, pages)
    };
    let http = HttpHandler::new(caller, settings.http.env.clone());
    let slots = typed.slots.unwrap_or(settings.worker.slots);
    let pools = ExternalWorkers::open(&settings.pools, wanted(&typed, settings), slots).await?;
    let own = PreparedHandlers { batches, http, pools: &pools, registry: &registry };
    let most = typed.max_units;
    let worker = build(typed, settings, Arc::clone(&store), own)?;
    let alert_monitor = AlertMonitor::new(Arc::clone(&store), settings.scope(), sources, actions);
    let alert_sink = AlertSinks::open(&settings.alerts)?;
    let drain_after_limit = drain_after_limit(worker.control(), worker.stats(), most);
    let (report, signal) = tokio::select! {
        ended = run_with_monitor(run_with_signals(worker, drain), Arc::clone(&store), alert_monitor) => ended?,
        () = inference::run_background(&inference, &*store) => return Ok(ExitCode::Good),
        never = drain_after_limit => match never {},
        never = pools.alert_on_deaths(&*alert_sink) => match never {},
    };
    inference::flush(&inference).await;
    tokio::join!(pools.close(), commands.close(SHUTDOWN_TIMEOUT));
    print_report(&report, settings)?;
    if report.left > 0 {
        anyhow::bail!("cannot record the outcome of {} units; they will run again", report.left);
    }
    let cut_short = signal.is_some() && report.interrupted > 0;
    Ok(if cut_short { ExitCode::Interrupted } else { ExitCode::Good })
}

/// Drains the worker once it has run `most` units.
async fn drain_after_limit(control: WorkerControl, stats: Arc<WorkerStats>, most: Option<u64>) -> Infallible {
    let Some(most) = most else { return std::future::pending().await };
    while stats.ran() < most {
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
    control.drain();
    std::future::pending().await
}

pub fn print_report(report: &WorkerReport, settings: &Settings) -> anyhow::Result<()> {
    if settings.output.is_json() {
        return settings.output.json(report);
    }
    let WorkerReport { done, failed, cancelled, retried, .. } = report;
    let words = format!("{done} done, {failed} failed, {cancelled} cancelled, {retried} retried");
    settings.output.note(words);
    Ok(())
}

/// Handlers that are built before the worker.
struct PreparedHandlers<'a> {
    batches: BatchHandlers,
    http: HttpHandler,
    pools: &'a ExternalWorkers,
    registry: &'a PoolRegistry,
}

/// The kinds to claim; empty means all.
fn wanted<'a>(typed: &'a WorkerArgs, settings: &'a Settings) -> &'a [Kind] {
    if typed.kind.is_empty() { &settings.worker.kinds } else { &typed.kind }
}

fn build(
    typed: WorkerArgs,
    settings: &Settings,
    store: Arc<dyn Store>,
    PreparedHandlers { batches, http, pools, registry }: PreparedHandlers<'_>,
) -> anyhow::Result<EngineWorker> {
    let (defaults, wanted) = (&settings.worker, wanted(&typed, settings).to_vec());
    let queues = if typed.queue.is_empty() { defaults.queues.clone() } else { typed.queue };
    let queues = if queues.is_empty() { Queues::All } else { Queues::Named(queues) };
    let starts = BatchStartHandler::new(Arc::clone(&store), settings);
    let mut builder = EngineWorker::builder(store)
        .slots(typed.slots.unwrap_or(defaults.slots))
        .resources(resource::collect_resources(&typed.resource)?)
        .queues(queues)
        .scope(settings.scope())
        .label(label())
        .ttl(typed.ttl.map_or(defaults.ttl, |span| span.0))
        .until_idle(typed.until_idle)
        .retention(settings.retention)
        .alert_sink(AlertSinks::open(&settings.alerts)?)
        .prefetch(Prefetch::Adaptive)
        .immediate_takeover(true);
    if let Some(batch) = typed.batch {
        builder = builder.batch(batch);
    }
    let dir = typed.exec_dir.unwrap_or_else(|| defaults.exec_dir.clone());
    let exec = exec_handler(dir, typed.exec_user, defaults)?;
    let mut built_in = WorkerHandlers { exec, http, batches, starts, pools, registry, chaos: None };
    if let Some(log) = typed.chaos_log {
        built_in.chaos = Some(ChaosHandler::open(&log)?);
    }
    builder = built_in.register(builder, &wanted)?;
    // After the pools of worker processes: a setting for one kind takes precedence over one for
    // all.
    for (kind, name) in &defaults.pools {
        if let Some(pool) = registry.find(name) {
            builder = builder.require_permit(kind.clone(), pool.clone());
        }
    }
    Ok(builder.build()?)
}

fn exec_handler(dir: PathBuf, user: Option<String>, defaults: &WorkerConfig) -> anyhow::Result<ExecHandler> {
    if let Some(secret) = defaults.exec_env.iter().find(|name| env::SECRETS.contains(&name.as_str())) {
        return Err(usage(format!("`worker.exec_env` names {secret}, which commands never inherit")))
            .hint("leave it out: a command could read the worker's secrets");
    }
    let user = user.or_else(|| defaults.exec_user.clone()).map(|name| OsUser::find(&name)).transpose()?;
    // A command of the other user could type into the terminal of root's shell (TIOCSTI).
    if user.is_some() && std::fs::File::open("/dev/tty").is_ok() {
        return Err(anyhow!("a worker with --exec-user must not have a terminal"))
            .hint("start it as a service, or with `setsid --wait longshore worker …`");
    }
    Ok(ExecHandler::new(CommandSettings::new(dir).inherit(defaults.exec_env.clone()).user(user)))
}

/// The built-in handlers, and those of worker processes.
struct WorkerHandlers<'a> {
    exec: ExecHandler,
    http: HttpHandler,
    batches: BatchHandlers,
    starts: BatchStartHandler,
    pools: &'a ExternalWorkers,
    registry: &'a PoolRegistry,
    chaos: Option<ChaosHandler>,
}

impl WorkerHandlers<'_> {
    /// Registers the handlers of the wanted kinds, or all.
    fn register(self, mut to: WorkerBuilder, wanted: &[Kind]) -> anyhow::Result<WorkerBuilder> {
        let (exec_kind, chaos_kind) = (Kind::new(exec::KIND)?, Kind::new(chaos::KIND)?);
        let http_kind = Kind::new(http::KIND)?;
        let (row_kind, end_kind) = (Kind::new(ROW_KIND)?, Kind::new(COMPLETION_KIND)?);
        let bulk_kind = Kind::new(PROVIDER_BATCH_KIND)?;
        let start_kind = Kind::new(batch_start::KIND)?;
        let is_ours = |kind: &Kind| {
            [&exec_kind, &http_kind, &row_kind, &bulk_kind, &end_kind, &start_kind].contains(&kind)
                || (*kind == chaos_kind && self.chaos.is_some())
        };
        if let Some(twice) = self.pools.kinds().find(|kind| is_ours(kind)) {
            return Err(usage(format!("kind `{twice}` is built in, but a worker process handles it too")))
                .hint("name its other operations in `kinds`, or rename this one");
        }
        let has = |kind: &Kind| is_ours(kind) || self.pools.kinds().any(|own| own == kind);
        if let Some(unknown) = wanted.iter().find(|kind| !has(kind)) {
            let batches = format!("`{start_kind}`, `{row_kind}`, `{bulk_kind}` and `{end_kind}`");
            let known = format!("`{exec_kind}`, `{http_kind}`, {batches}");
            return Err(usage(format!("this worker has no handler for kind `{unknown}`"))).hint(format!(
                "built in are {known}; other kinds need a worker process ([workers.NAME]) or \
                     their own program"
            ));
        }
        to = self.pools.register(to, wanted, self.registry);
        let wants = |kind: &Kind| wanted.is_empty() || wanted.contains(kind);
        if wants(&exec_kind) {
            // A command may have done half its work: it is retried only on request.
            let policy = Policy { retry: RetryPolicy::never(), ..Policy::default() };
            to = to.handle(exec_kind, policy, self.exec);
        }
        if wants(&http_kind) {
            // A retried request carries the same key, so that the server can recognise it.
            to = to.handle(http_kind, Policy::default(), self.http);
        }
        // A worker that claims rows must also run their provider batches, or no worker might.
        if wants(&row_kind) || wants(&bulk_kind) {
            to = to.handle(bulk_kind, ProviderBatchHandler::policy(), self.batches.bulk);
        }
        if wants(&row_kind) {
            to = to.handle(row_kind, Policy::default(), self.batches.rows);
        }
        if wants(&start_kind) {
            // The batch is named after the unit, so a retry resumes it.
            to = to.handle(start_kind, Policy::default(), self.starts);
        }
        if wants(&end_kind) {
            to = to.handle(end_kind, completion_policy(), self.batches.ends);
        }
        if let Some(handler) = self.chaos.filter(|_| wants(&chaos_kind)) {
            // A chaos run may lose a unit many times without the unit's fault.
            let policy = Policy { max_lost: u32::MAX, ..Policy::default() };
            to = to.handle(chaos_kind, policy, handler);
        }
        Ok(to)
    }
}
