//! `dispatch`: pools of script workers.

mod alloc;
pub mod arrays;
pub mod embedded_server;
mod output;
mod serve;
mod start;
mod status;
mod top;
pub mod units;
mod workers;

pub use serve::state_folder;
pub use start::real_hooks;

use std::path::Path;
use std::time::Duration;

use longshore_dispatch::access::AccessError;
use longshore_dispatch::client::{ClientError, DispatchClient};
use longshore_dispatch::connection::ConnectError;
use longshore_dispatch::request::{
    AllocationAction, AllocationChange, ClientRequest, PoolStatus, ServerReply, ShutdownMode,
};
use longshore_trusted_path::PathError;
use tokio::time::Instant;

use crate::args::dispatch::{DispatchCommand, DispatchScaleArgs, DispatchStopArgs, DispatchWaitArgs};
use crate::args::dispatch_pool::DispatchPoolArg;
use crate::commands::wait::with_wait_limit;
use crate::error::{WithHint, hinted, usage};
use crate::exit::ExitCode;
use crate::host_identity;
use crate::settings::Settings;

/// Interval between two reads of a status that is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// For how long a server that shuts down may send no reply before that is an error.
const UNREACHABLE_LIMIT: Duration = Duration::from_secs(60);

/// Whether the command handles SIGTERM and SIGINT itself.
pub fn handles_signals(typed: &DispatchCommand) -> bool {
    matches!(typed, DispatchCommand::Serve(_))
}

/// Runs the command.
pub async fn run(typed: DispatchCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        DispatchCommand::Start(typed) => start::run(*typed, settings).await,
        DispatchCommand::Serve(typed) => serve::run(*typed, settings).await,
        DispatchCommand::Status(pool) => status::run(&pool, settings).await,
        DispatchCommand::Top(typed) => top::run(&typed, settings).await,
        DispatchCommand::Explain(pool) => status::explain(&pool, settings).await,
        DispatchCommand::Output(typed) => output::run(&typed, settings),
        DispatchCommand::Scale(typed) => scale(typed, settings).await,
        DispatchCommand::Alloc(typed) => alloc::run(typed, settings).await,
        DispatchCommand::Worker(typed) => workers::run(typed, settings).await,
        DispatchCommand::Wait(typed) => wait(typed, settings).await,
        DispatchCommand::Stop(typed) => stop(typed, settings).await,
    }
}

/// Connects to the pool's server, as this process's session.
pub async fn connect(pool: &DispatchPoolArg, settings: &Settings) -> anyhow::Result<DispatchClient> {
    let mut client = connect_in(&settings.dispatch.folder(pool.dir.as_deref())).await?;
    client.request(&ClientRequest::Identify(session())).await?;
    Ok(client)
}

pub async fn connect_in(folder: &Path) -> anyhow::Result<DispatchClient> {
    DispatchClient::connect(folder).await.map_err(|error| match connection_hint(&error, folder) {
        Some(hint) => hinted(error.into(), hint),
        None => error.into(),
    })
}

/// The hint for a failed connection.
fn connection_hint(error: &ClientError, folder: &Path) -> Option<String> {
    let ClientError::Connect(error) = error else { return None };
    let start = || format!("`longshore dispatch start --dir {}` starts a pool", folder.display());
    match error {
        ConnectError::Access(AccessError::Untrusted(PathError::Accessible { path, .. })) => Some(format!(
            "any process that has read it can use the pool: stop the pool and start it again, \
             or `chmod 600 {}` if none has",
            path.display()
        )),
        ConnectError::Access(error) if error.is_of_another_user() => {
            Some("a pool is for one user; `--dir` names another folder".to_owned())
        }
        ConnectError::Unreachable { wrong_identity: true, .. } => Some(
            "another server answers there: is this file an old copy? `--dir` names the pool's own \
             folder"
                .to_owned(),
        ),
        ConnectError::Refused(_) => Some(
            "another version of Longshore started this pool: use that version, or stop the pool with it and start \
             it again"
                .to_owned(),
        ),
        ConnectError::Unreachable { .. } => Some(format!(
            "a server that hangs answers when it runs again; if it has ended, {}",
            start()
        )),
        ConnectError::Access(_) => Some(start()),
        _ => None,
    }
}

/// `user@host` and the process session: every command of a shell or of a script has the same.
fn session() -> String {
    // Not rustix's `getsid`, which panics where the session began outside of this container.
    let session = longshore_process::ProcessStat::own().map_or(0, |stat| stat.session);
    format!("{}:{session}", host_identity::initiator())
}

async fn ask_status(client: &mut DispatchClient) -> anyhow::Result<PoolStatus> {
    match client.request(&ClientRequest::Status).await? {
        ServerReply::Status(status) => Ok(*status),
        other => Err(unexpected_reply(&other)),
    }
}

/// The error for a reply to another request.
pub fn unexpected_reply(reply: &ServerReply) -> anyhow::Error {
    anyhow::anyhow!("the server sent an unexpected reply: {reply:?}")
}

async fn scale(typed: DispatchScaleArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (min, max) = (typed.workers, typed.max_workers.unwrap_or(typed.workers));
    if max < min {
        return Err(usage(format!("the maximum of {max} workers is below the minimum of {min}")))
            .hint("`dispatch scale MIN MAX`");
    }
    let drain = typed.drain_timeout.0;
    let mut client = connect(&typed.pool, settings).await?;
    let change = AllocationChange { name: typed.alloc, action: AllocationAction::Resize { min, max, drain } };
    client.request(&ClientRequest::ChangeAllocation(change)).await?;
    let words = || match min == max {
        true => format!("{min} workers are wanted"),
        false => format!("{min} to {max} workers are wanted"),
    };
    settings.output.answer(&serde_json::json!({ "min": min, "max": max }), words)?;
    Ok(ExitCode::Good)
}

async fn wait(typed: DispatchWaitArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut client = connect(&typed.pool, settings).await?;
    let before = ask_status(&mut client).await?;
    match before.ready + before.not_ready + before.claimed {
        0 => {}
        1 => settings.output.note("waiting for 1 script"),
        count => settings.output.note(format!("waiting for {count} scripts")),
    }
    let idle = async {
        loop {
            match client.request(&ClientRequest::Idle).await? {
                ServerReply::Idle(Some(report)) => {
                    return anyhow::Ok((report, ask_status(&mut client).await?));
                }
                ServerReply::Idle(None) => tokio::time::sleep(POLL_INTERVAL).await,
                other => return Err(unexpected_reply(&other)),
            }
        }
    };
    let (report, status) = with_wait_limit(typed.wait_limit, "the pool continues", idle).await?;
    // Pruning may have made the counts smaller; the server counts failures one by one.
    let since = |now: u64, before: u64| now.saturating_sub(before);
    let (done, cancelled) = (since(status.done, before.done), since(status.cancelled, before.cancelled));
    let failed = report.failed.max(since(status.failed, before.failed));
    if failed == 0 && !report.is_complete {
        let words = "failed scripts may have been removed since this session submitted its first";
        return Err(anyhow::anyhow!("whether a script failed is unknown: {words}"))
            .hint("keep failed units for longer: `[keep] failed`");
    }
    let result = serde_json::json!({ "done": done, "failed": failed, "cancelled": cancelled });
    settings.output.answer(&result, || format!("{done} done, {failed} failed, {cancelled} cancelled"))?;
    Ok(if failed > 0 { ExitCode::Failures } else { ExitCode::Good })
}

/// The process of a pool's server. A server inside `serve` has none of its own, and launches no workers.
fn own_process(status: &PoolStatus) -> Option<u32> {
    (status.size != (0, 0) || status.threads > 0).then_some(status.pid)
}

/// Waits until a server that shuts down has ended. It keeps its connections until its workers, their
/// jobs and its files are gone.
async fn wait_for_end(
    client: &mut DispatchClient,
    folder: &Path,
    status: Option<&PoolStatus>,
) -> anyhow::Result<()> {
    let pid = status.and_then(own_process).filter(|_| client.is_local());
    let process = pid.and_then(longshore_process::to_pid).map(longshore_process::ExitWatcher::new);
    let Some(process) = process else { return wait_until_gone(client, folder).await };
    tokio::select! {
        biased;
        () = process.wait() => return Ok(()),
        gone = wait_until_gone(client, folder) => gone?,
    }
    process.wait().await;
    Ok(())
}

/// Waits until the server has removed its access file, or another server works in its place. A broken
/// connection says nothing about the server: the network may have failed.
async fn wait_until_gone(client: &mut DispatchClient, folder: &Path) -> anyhow::Result<()> {
    let mut last_reply = Instant::now();
    loop {
        let error = match client.request(&ClientRequest::Status).await {
            Ok(ServerReply::Status(status)) if status.state == "working" => return Ok(()),
            Ok(_) | Err(ClientError::Refused(_) | ClientError::Rejected(_)) => {
                last_reply = Instant::now();
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
            Err(error) => error,
        };
        let error = match DispatchClient::connect(folder).await {
            Ok(connected) => {
                *client = connected;
                error
            }
            Err(ClientError::Connect(ConnectError::Access(AccessError::Missing(_)))) => return Ok(()),
            Err(error) => error,
        };
        if last_reply.elapsed() >= UNREACHABLE_LIMIT {
            let what = "the server cannot be reached any more; the pool may still run";
            return Err(anyhow::Error::from(error).context(what)).hint(
                "`longshore dispatch status` says whether it runs; if its machine or process is gone, remove \
                 access.json and worker.json from the pool's folder",
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn stop(typed: DispatchStopArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut client = connect(&typed.pool, settings).await?;
    let status = ask_status(&mut client).await?;
    let ending = if typed.now { ShutdownMode::Now } else { ShutdownMode::Drain(typed.drain_timeout.0) };
    client.request(&ClientRequest::Stop(ending)).await?;
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    wait_for_end(&mut client, &folder, Some(&status)).await?;
    settings.output.answer(&serde_json::json!({ "stopped": true }), || "the pool has ended".into())?;
    Ok(ExitCode::Good)
}
