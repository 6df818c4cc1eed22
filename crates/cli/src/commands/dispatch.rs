//! `dispatch`: pools of script workers.

pub mod arrays;
pub mod host;
mod output;
mod serve;
mod start;
mod status;
mod top;
pub mod units;

use std::path::Path;

use longshore_dispatch::access::AccessError;
use longshore_dispatch::client::{Client, ClientError};
use longshore_dispatch::link::LinkError;
use longshore_dispatch::request::{Ending, Reply, Request, Status};

use crate::args::dispatch::{Dispatch, Pool, Scale, Stop, Wait};
use crate::error::{WithHint, hinted};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// How often something that is waited for is looked at.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// Whether the command knows better ways than to end at a signal.
pub fn obeys_signals(typed: &Dispatch) -> bool {
    matches!(typed, Dispatch::Serve(_))
}

/// Runs the command.
pub async fn run(typed: Dispatch, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Dispatch::Start(typed) => start::run(*typed, settings).await,
        Dispatch::Serve(typed) => serve::run(*typed, settings).await,
        Dispatch::Status(pool) => status::run(&pool, settings).await,
        Dispatch::Top(typed) => top::run(&typed, settings).await,
        Dispatch::Explain(pool) => status::explain(&pool, settings).await,
        Dispatch::Output(typed) => output::run(&typed, settings),
        Dispatch::Scale(typed) => scale(typed, settings).await,
        Dispatch::Wait(typed) => wait(typed, settings).await,
        Dispatch::Stop(typed) => stop(typed, settings).await,
    }
}

/// A connection to the pool's server.
pub async fn connect(pool: &Pool, settings: &Settings) -> anyhow::Result<Client> {
    connect_in(&settings.dispatch.folder(pool.dir.as_deref())).await
}

async fn connect_in(folder: &Path) -> anyhow::Result<Client> {
    Client::connect(folder).await.map_err(|error| match way_on(&error, folder) {
        Some(hint) => hinted(error.into(), hint),
        None => error.into(),
    })
}

/// What helps where there is no connection.
fn way_on(error: &ClientError, folder: &Path) -> Option<String> {
    let ClientError::Link(error) = error else { return None };
    let start = || format!("`longshore dispatch start --dir {}` starts a pool", folder.display());
    match error {
        LinkError::Access(AccessError::Open { path, .. }) => Some(format!(
            "whoever has read it may use the pool: stop it and start it anew, \
             or `chmod 600 {}` if nobody has",
            path.display()
        )),
        LinkError::Access(AccessError::Foreign(_)) => {
            Some("a pool is for one user; `--dir` names another folder".to_owned())
        }
        LinkError::Unreachable { stranger: true, .. } => Some(
            "another server answers there: is this file an old copy? `--dir` names the pool's own \
             folder"
                .to_owned(),
        ),
        LinkError::Access(_) | LinkError::Unreachable { .. } => Some(start()),
        _ => None,
    }
}

async fn ask_status(client: &mut Client) -> anyhow::Result<Status> {
    match client.ask(&Request::Status).await? {
        Reply::Status(status) => Ok(*status),
        other => Err(unexpected(&other)),
    }
}

/// An answer to another question.
pub fn unexpected(reply: &Reply) -> anyhow::Error {
    anyhow::anyhow!("the server gave another answer than was asked for: {reply:?}")
}

async fn scale(typed: Scale, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (min, max) = (typed.workers, typed.max_workers.unwrap_or(typed.workers).max(typed.workers));
    let mut client = connect(&typed.pool, settings).await?;
    client.ask(&Request::Scale { min, max }).await?;
    let words = || match min == max {
        true => format!("{min} workers are wanted"),
        false => format!("{min} to {max} workers are wanted"),
    };
    settings.output.answer(&serde_json::json!({ "min": min, "max": max }), words)?;
    Ok(ExitCode::Good)
}

async fn wait(typed: Wait, settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut client = connect(&typed.pool, settings).await?;
    let idle = async {
        loop {
            let status = ask_status(&mut client).await?;
            if status.ready + status.later + status.claimed == 0 {
                return anyhow::Ok(status);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let status = match typed.limit {
        None => idle.await?,
        Some(limit) => tokio::time::timeout(limit.0, idle).await.hint("the pool goes on")??,
    };
    let words = || {
        format!("{} done, {} failed, {} cancelled", status.done, status.failed, status.cancelled)
    };
    settings.output.answer(&status, words)?;
    Ok(if status.failed > 0 { ExitCode::Failures } else { ExitCode::Good })
}

async fn stop(typed: Stop, settings: &Settings) -> anyhow::Result<ExitCode> {
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    let mut client = connect_in(&folder).await?;
    let pid = ask_status(&mut client).await?.pid;
    let ending = if typed.now { Ending::Now } else { Ending::Drain(typed.drain_timeout.0) };
    client.ask(&Request::Stop(ending)).await?;
    // It has ended once nobody answers any more and its process, if it is here, is gone.
    while ask_status(&mut client).await.is_ok() || start::is_alive(&folder, pid) {
        tokio::time::sleep(LOOK).await;
    }
    settings
        .output
        .answer(&serde_json::json!({ "stopped": true }), || "the pool has ended".into())?;
    Ok(ExitCode::Good)
}
