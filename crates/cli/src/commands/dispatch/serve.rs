//! `dispatch serve`: runs the server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore::{ByteSize, HumanDuration, Store};
use longshore_dispatch::launch::scaler::DEFAULT_DRAIN;
use longshore_dispatch::launch::{Allocation, DEFAULT_ALLOCATION, JobFactory, JobTemplate, LaunchSetup};
use longshore_dispatch::request::ShutdownMode;
use longshore_dispatch::scheduler::{GPU, MEMORY};
use longshore_dispatch::server::{
    LaunchOptions, Server, ServerControl, ServerError, ServerOptions, Timing, prepare_folder, prepare_state,
};
use longshore_dispatch::system::{BaseSystem, JobAttributes, RetryBackoff, SystemConfig};
use tokio::signal::unix::{SignalKind, signal};

use super::start::PoolSizeArg;
use crate::args::dispatch::DispatchStartArgs;
use crate::args::resource::{self, ResourceArg};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::store::{self, StoreUrl};

/// How long a worker may take to end after its drain before the base system kills it.
const KILL_MARGIN: Duration = Duration::from_secs(30);

/// Timeout of a command of the base system.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until it is told to stop, or its owner process has ended.
pub async fn run(typed: DispatchStartArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    // Detached from the terminal: the server must outlive it.
    let _ = rustix::process::setsid();
    let wanted = PoolSizeArg::of(&typed, settings)?;
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    prepare_folder(&folder).map_err(ServerError::Folder)?;
    let folder = folder.canonicalize()?;
    prepare_folder(&folder.join("workers")).map_err(ServerError::Folder)?;
    let state = state_folder(typed.state.as_deref(), &folder);
    prepare_state(&state).map_err(ServerError::State)?;
    let store = open_store(settings, &state).await?;
    let drain = typed.drain_timeout.map_or(settings.worker.drain_timeout, |span| span.0);
    let first = Allocation {
        name: DEFAULT_ALLOCATION.to_owned(),
        base: wanted.qsys.base,
        min: wanted.workers,
        max: wanted.max_workers,
        threads: wanted.threads,
        resources: worker_resources(&typed.resource, typed.mem)?,
        time: typed.time,
        idle: typed.idle,
        drain: HumanDuration(typed.drain_timeout.map_or(DEFAULT_DRAIN, |span| span.0)),
        options: typed.options.clone(),
        paused: false,
    };
    let listen = match typed.listen.is_empty() {
        false => typed.listen.clone(),
        true => addresses(wanted.qsys.base),
    };
    let (ttl, owner) = (typed.ttl.0, typed.owner);
    let launch = LaunchOptions {
        first,
        roots: wanted.roots.clone(),
        allowed_env: wanted.allowed_env.clone(),
        setup: LaunchSetup { job: job_factory(typed, folder.clone(), wanted)?, site: site_config() },
    };
    let server = Server::bind(ServerOptions {
        folder: folder.clone(),
        state,
        store,
        listen,
        launch: Some(launch),
        timing: Timing::with_ttl(ttl),
        retention: settings.retention,
    })
    .await?;
    tracing::info!(addresses = ?server.addresses(), folder = %folder.display(), "listening");
    let control = server.control();
    let report = tokio::select! {
        report = server.run() => report?,
        never = stop_on_signal(control, owner, drain) => never?,
    };
    tracing::info!(done = report.done, failed = report.failed, "the pool has ended");
    Ok(ExitCode::Good)
}

/// Stops the server at a signal, or when its owner ends. Never returns otherwise. After a first signal
/// scripts may run on for `drain`.
pub async fn stop_on_signal<T>(
    control: ServerControl,
    owner: Option<i32>,
    drain: Duration,
) -> anyhow::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ending = tokio::select! {
        _ = terminate.recv() => ShutdownMode::Drain(drain),
        _ = interrupt.recv() => ShutdownMode::Drain(drain),
        () = process_ended(owner) => {
            tracing::info!("the process that started this pool has ended");
            ShutdownMode::Now
        }
    };
    control.shut_down(ending).await;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    control.shut_down(ShutdownMode::Now).await;
    std::future::pending().await
}

/// Returns once the owner process has ended.
async fn process_ended(owner: Option<i32>) {
    let Some(pid) = owner.filter(|pid| *pid > 1).and_then(longshore_process::Pid::from_raw) else {
        return std::future::pending().await;
    };
    longshore_process::ExitWatcher::new(pid).wait().await;
}

/// The server's state folder: beside the access file, unless that is on a network file system.
pub fn state_folder(typed: Option<&Path>, folder: &Path) -> PathBuf {
    if let Some(state) = typed {
        return state.to_path_buf();
    }
    let beside = folder.join("state");
    if longshore_sqlite::is_local(folder) {
        return beside;
    }
    let name: String = folder.to_string_lossy().replace('/', "-");
    let user = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/var/tmp/longshore-{user}")).join(name.trim_matches('-'))
}

async fn open_store(settings: &Settings, state: &Path) -> anyhow::Result<Arc<dyn Store>> {
    let own = StoreUrl::Sqlite(state.join("units.db"));
    let url = if settings.store_named { &settings.store } else { &own };
    store::open_at(url, settings).await
}

/// The named resources of a worker, with its memory.
pub fn worker_resources(
    named: &[ResourceArg],
    memory: Option<ByteSize>,
) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut resources = resource::collect_resources(named)?;
    if let Some(size) = memory {
        resources.insert(MEMORY.to_owned(), u32::try_from(size.0 >> 20).unwrap_or(u32::MAX));
    }
    Ok(resources)
}

fn job_factory(typed: DispatchStartArgs, folder: PathBuf, wanted: PoolSizeArg) -> anyhow::Result<JobFactory> {
    let program = std::env::current_exe()?;
    Ok(Arc::new(move |allocation| job_template(&program, &typed, &folder, &wanted, allocation)))
}

fn job_template(
    program: &Path,
    typed: &DispatchStartArgs,
    folder: &Path,
    wanted: &PoolSizeArg,
    allocation: &Allocation,
) -> JobTemplate {
    let text = |path: &Path| path.display().to_string();
    let mut command = vec![text(program), "worker".to_owned()];
    let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
    add("--server", text(folder));
    add("--nthr", allocation.threads.to_string());
    add("--launch", "%n".to_owned());
    for (name, amount) in &allocation.resources {
        add("--resource", format!("{name}={amount}"));
    }
    if let Some(time) = allocation.time {
        add("--lifetime", format!("{}s", time.0.as_secs()));
    }
    if let Some(drain) = typed.drain_timeout {
        add("--drain-timeout", format!("{}ms", drain.0.as_millis()));
    }
    for root in &wanted.roots {
        add("--root", text(root));
    }
    for name in &wanted.allowed_env {
        add("--allow-env", name.clone());
    }
    for (name, hook) in [("--before", &wanted.hooks.before), ("--after", &wanted.hooks.after)] {
        if let Some(hook) = hook {
            add(name, text(hook));
        }
    }
    JobTemplate {
        command,
        folder: folder.join("workers"),
        threads: allocation.threads,
        time: allocation.time.map(|span| span.0),
        memory: allocation.resources.get(MEMORY).copied().map(u64::from),
        terms: JobAttributes::default(),
        options: options(typed, allocation),
    }
}

/// The launcher retries itself and reports the error meanwhile, so a command is tried once.
fn site_config() -> SystemConfig {
    let usual = RetryBackoff::default();
    SystemConfig {
        command_timeout: COMMAND_TIMEOUT,
        retries: RetryBackoff { max_attempts: 1, ..usual },
        ..SystemConfig::default()
    }
}

/// The base system's options, with our additions.
fn options(typed: &DispatchStartArgs, allocation: &Allocation) -> Vec<String> {
    let Allocation { base, resources, .. } = allocation;
    let mut options = allocation.options.clone();
    if *base == BaseSystem::Kubernetes {
        let grace = typed.drain_timeout.map(|drain| drain.0 + KILL_MARGIN);
        let grace = grace.map(|grace| format!("--grace-period={}", grace.as_secs()));
        let gpus = resources.get(GPU).map(|count| format!("--gpus={count}"));
        // In front: a later option of the user replaces them.
        options.splice(0..0, grace.into_iter().chain(gpus));
    }
    if *base == BaseSystem::Sge && !options.iter().any(|option| option.contains("-notify")) {
        // Without it Grid Engine kills without a warning signal, and its accounting does not tell
        // that from a crash.
        options.insert(0, "-notify".to_owned());
    }
    options
}

/// Addresses at which workers of this base system can reach the server.
fn addresses(base: BaseSystem) -> Vec<IpAddr> {
    let local = IpAddr::from(Ipv4Addr::LOCALHOST);
    if base == BaseSystem::Local {
        return vec![local];
    }
    let mut all = crate::host_identity::addresses();
    all.push(local);
    all
}
