//! `dispatch start`: a server in the background, or the one that is there.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use longshore_dispatch::access::{Access, AccessError};
use longshore_dispatch::client::{Client, ClientError};
use longshore_dispatch::link::LinkError;
use longshore_dispatch::request::Status;
use longshore_dispatch::system::{QueueSystem, Role};
use tokio::time::Instant;

use super::{LOOK, ask_status, way_on};
use crate::args::dispatch::Start;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// What helps where a folder cannot be used.
const ELSEWHERE: &str = "`--dir` names a folder that this user can write to and all workers see";

/// What a pool is to be, once flags, configuration and defaults have had their say.
pub struct Wanted {
    pub qsys: QueueSystem,
    pub workers: u32,
    pub max_workers: u32,
    pub threads: u32,
}

impl Wanted {
    /// Explicit, then configuration, then default; below 1 becomes 1. With `--max-workers` there may
    /// be none to begin with.
    pub fn of(typed: &Start, settings: &Settings) -> anyhow::Result<Self> {
        let defaults = &settings.dispatch;
        let qsys = typed.qsys.unwrap_or(defaults.qsys);
        if qsys.role == Role::Direct {
            let worker = QueueSystem { role: Role::Workers, ..qsys };
            return Err(usage(format!("`{qsys}` runs scripts directly, and has no pool")))
                .hint(format!("`--qsys {worker}` starts workers through it; `submit --qsys {qsys}` needs no pool"));
        }
        let least = i64::from(typed.max_workers.is_none());
        let workers = typed.workers.unwrap_or(i64::from(defaults.workers)).max(least);
        let threads = typed.nthr.unwrap_or(i64::from(defaults.threads)).max(1);
        let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let workers = number(workers);
        let max_workers = typed.max_workers.unwrap_or(workers).max(workers);
        Ok(Self { qsys, workers, max_workers, threads: number(threads) })
    }
}

/// Runs the command.
pub async fn run(typed: Start, settings: &Settings) -> anyhow::Result<ExitCode> {
    let wanted = Wanted::of(&typed, settings)?;
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    match Client::connect(&folder).await {
        Ok(mut client) => {
            let status = ask_status(&mut client).await?;
            compatible(&status, &wanted)?;
            return up(&folder, &status, "used again", settings);
        }
        // There may be a server that we must not speak to, and must not take the place of.
        Err(error) if is_not_ours(&error) => {
            let hint = way_on(&error, &folder).unwrap_or_default();
            return Err(error).hint(hint);
        }
        Err(_) => {}
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the pool's folder {}", folder.display()))
        .hint(ELSEWHERE)?;
    let log = folder.join("server.log");
    let mut server = launch(&typed, settings, &folder, &log)?;
    let limit = Instant::now() + typed.wait_limit.0;
    let mut bar = None;
    loop {
        let ended = server.try_wait()?;
        let found = Client::connect(&folder).await;
        // It may have found that another was faster: then that one is used.
        if let (Some(status), Err(_)) = (ended, &found) {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().rev().take(5).collect::<Vec<_>>().into_iter().rev();
            let last = last.collect::<Vec<_>>().join("\n  ");
            anyhow::bail!("the server ended at once ({status}):\n  {last}");
        }
        if let Ok(mut client) = found
            && let Ok(status) = ask_status(&mut client).await
        {
            if ended.is_some() {
                compatible(&status, &wanted)?;
            }
            if status.workers.len() >= wanted.workers as usize {
                return up(&folder, &status, "up", settings);
            }
            let bar = bar.get_or_insert_with(|| settings.output.bar("{spinner} {msg}"));
            bar.set_message(format!(
                "{} of {} workers are there",
                status.workers.len(),
                wanted.workers
            ));
        }
        if Instant::now() >= limit {
            let words = format!("not all workers were there after {:?}", typed.wait_limit.0);
            return Err(anyhow::anyhow!(words))
                .hint("the pool goes on; `longshore dispatch explain` says why");
        }
        tokio::time::sleep(LOOK / 4).await;
    }
}

/// Whether the access file is one that others may read, or somebody else's.
fn is_not_ours(error: &ClientError) -> bool {
    let ClientError::Link(LinkError::Access(error)) = error else { return false };
    matches!(error, AccessError::Open { .. } | AccessError::Foreign(_))
}

fn up(folder: &Path, status: &Status, word: &str, settings: &Settings) -> anyhow::Result<ExitCode> {
    settings.output.answer(status, || {
        let threads: u32 = status.workers.iter().map(|worker| worker.threads).sum();
        let (workers, base) = (status.workers.len(), &status.base);
        format!(
            "the pool in {} is {word}: {workers} workers by {base}, {threads} threads",
            folder.display()
        )
    })?;
    Ok(ExitCode::Good)
}

/// A pool is used again only if it is what is wanted, or more.
fn compatible(status: &Status, wanted: &Wanted) -> anyhow::Result<()> {
    let base = wanted.qsys.base.name();
    let problem = if status.base != base {
        format!("its workers are started by {}, not {base}", status.base)
    } else if status.threads < wanted.threads {
        format!("its workers have {} threads, not {}", status.threads, wanted.threads)
    } else if status.size.1 < wanted.workers {
        format!("it has {} workers, not {}", status.size.1, wanted.workers)
    } else {
        return Ok(());
    };
    Err(anyhow::anyhow!("the pool that runs here cannot be used: {problem}"))
        .hint("`longshore dispatch stop` ends it, `dispatch scale` makes it larger, `--dir` names another")
}

/// Starts the server as a process of its own. It leaves our terminal by itself.
fn launch(typed: &Start, settings: &Settings, folder: &Path, log: &Path) -> anyhow::Result<Child> {
    let output = File::options().create(true).append(true).open(log);
    let output = output.with_context(|| format!("cannot write {}", log.display()));
    let output = output.hint(ELSEWHERE)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["dispatch", "serve"]).args(again()).arg("--dir").arg(folder);
    if !typed.detach {
        let owner = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
        command.arg("--owner").arg(owner.to_string());
    }
    if settings.store_named {
        command.env(crate::env::STORE, settings.store.with_password());
    }
    if !typed.options.is_empty() {
        command.arg("--").args(&typed.options);
    }
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
    Ok(command.spawn()?)
}

/// What was typed after `dispatch start`, without what is said anew.
fn again() -> Vec<std::ffi::OsString> {
    let typed = std::env::args_os().skip_while(|word| word != "start").skip(1);
    let mut words = Vec::new();
    let mut skip = false;
    for word in typed.take_while(|word| word != "--") {
        let text = word.to_string_lossy().into_owned();
        let named = ["--dir", "--owner"].into_iter().find(|name| text.starts_with(name));
        match named {
            Some(name) => skip = text == name,
            None if skip => skip = false,
            None if text == "--detach" => {}
            None => words.push(word),
        }
    }
    words
}

/// Whether the server's process is here and has not ended.
pub fn is_alive(folder: &Path, pid: u32) -> bool {
    let here = Access::read(folder).is_ok();
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    here && pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
