//! `worker --server`: runs a worker of a pool, which takes scripts from a server over TCP.

use std::ffi::OsString;

use longshore_dispatch::scheduler::{GPU, MEMORY};
use longshore_dispatch::worker::{self, ProgramCommand, WorkerSummary, hardware};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::resource::{self, OfferedResources, ResourceArg};
use crate::args::worker::{RemoteWorkerArgs, WorkerArgs};
use crate::commands::dispatch::real_hooks;
use crate::env;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: WorkerArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let remote = typed.remote;
    let OfferedResources { amounts, instances } = offered(&typed.resource, &remote)?;
    let threads = remote.nthr.map(|typed| u32::try_from(typed.max(1)).unwrap_or(u32::MAX));
    let options = worker::WorkerOptions {
        folder: remote.server.unwrap_or_default(),
        threads: threads.unwrap_or(settings.dispatch.threads),
        resources: amounts,
        resource_names: instances,
        launch: remote.launch,
        lifetime: remote.lifetime.map(|span| span.0),
        idle: remote.idle.map(|span| span.0),
        server_lost: remote.server_lost.0,
        drain: typed.drain_timeout.map_or(settings.worker.drain_timeout, |span| span.0),
        roots: remote.root,
        allowed_env: remote.allow_env,
        env: inherited(&remote.env),
        hooks: real_hooks(remote.before.as_deref(), remote.after.as_deref())?,
        kills_orphans: true,
    };
    let (tell, commands) = mpsc::channel(2);
    let connected = |address| tracing::info!(%address, "connected");
    let life = tokio::select! {
        life = worker::run(options, commands, connected) => life?,
        never = signals(tell) => never?,
    };
    self::tell(&life, settings)?;
    Ok(if life.interrupted > 0 { ExitCode::Interrupted } else { ExitCode::Good })
}

/// What the worker offers beside threads: as typed, or as this machine has it. The server of a pool says
/// everything of the workers that it launches.
fn offered(typed: &[ResourceArg], remote: &RemoteWorkerArgs) -> anyhow::Result<OfferedResources> {
    let mut offered = resource::collect_offered(typed)?;
    let OfferedResources { amounts, instances } = &mut offered;
    let visible = std::env::var(hardware::VISIBLE_GPUS).ok();
    let detects = remote.launch.is_none() && !remote.no_detect;
    let gpus = if detects || visible.is_some() { hardware::gpus(visible.as_deref()) } else { Vec::new() };
    if detects && !gpus.is_empty() {
        amounts.entry(GPU.to_owned()).or_insert(u32::try_from(gpus.len()).unwrap_or(u32::MAX));
    }
    // A base system that gave its job some GPUs of the machine has named them.
    if amounts.get(GPU).is_some_and(|count| gpus.len() >= *count as usize) {
        instances.entry(GPU.to_owned()).or_insert(gpus);
    }
    let memory = remote.mem.map(|size| u32::try_from(size.0 >> 20).unwrap_or(u32::MAX));
    let memory = memory.or_else(|| detects.then(hardware::memory).flatten());
    if let Some(memory) = memory {
        amounts.entry(MEMORY.to_owned()).or_insert(memory);
    }
    Ok(offered)
}

/// The first signal drains, the second stops. SIGUSR1 and SIGUSR2 are how Grid Engine announces the
/// end or suspension of a job, and Slurm the end of its time, where they are configured to.
async fn signals<T>(tell: mpsc::Sender<ProgramCommand>) -> anyhow::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut first = signal(SignalKind::user_defined1())?;
    let mut second = signal(SignalKind::user_defined2())?;
    for command in [ProgramCommand::Drain, ProgramCommand::Stop] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = first.recv() => {}
            _ = second.recv() => {}
        }
        tracing::info!(?command, "received a signal");
        let _ = tell.send(command).await;
    }
    std::future::pending().await
}

/// The environment of scripts: the same variables as for commands, and the named ones.
fn inherited(named: &[String]) -> Vec<(OsString, OsString)> {
    let wanted = |name: &OsString| {
        let name = name.to_string_lossy();
        let known = env::exec::INHERITED.iter().any(|known| *known == name);
        known || name.starts_with("LC_") || named.iter().any(|named| *named == name)
    };
    std::env::vars_os().filter(|(name, _)| wanted(name)).collect()
}

fn tell(life: &WorkerSummary, settings: &Settings) -> anyhow::Result<()> {
    if settings.output.is_json() {
        return settings.output.json(life);
    }
    let WorkerSummary { done, failed, interrupted, end_reason: why } = life;
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    settings.output.note(format!("{done} done, {failed} failed, {interrupted} interrupted{why}"));
    Ok(())
}
