//! `dispatch start`: starts a server in the background, or uses the running one.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use longshore_dispatch::access::AccessError;
use longshore_dispatch::client::{ClientError, DispatchClient};
use longshore_dispatch::connection::ConnectError;
use longshore_dispatch::request::PoolStatus;
use longshore_dispatch::server::prepare_folder;
use longshore_dispatch::system::{JobRole, QueueSystem};
use longshore_dispatch::worker::Hooks;
use tokio::time::Instant;

use super::{POLL_INTERVAL, ask_status, connection_hint, wait_for_end};
use crate::args::dispatch::DispatchStartArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// The hint for a folder that cannot be used.
const DIR_HINT: &str = "`--dir` names a folder that this user can write to and all workers see";

/// The size of a pool and the bounds of its workers, resolved from flags, configuration and defaults.
pub struct PoolSizeArg {
    pub qsys: QueueSystem,
    pub workers: u32,
    pub max_workers: u32,
    pub threads: u32,
    /// Real paths, sorted.
    pub roots: Vec<PathBuf>,
    /// Sorted.
    pub allowed_env: Vec<String>,
    /// Real paths.
    pub hooks: Hooks,
}

impl PoolSizeArg {
    /// Flag, then configuration, then default; 0 becomes 1. With `--max-workers` the minimum
    /// may be 0.
    pub fn of(typed: &DispatchStartArgs, settings: &Settings) -> anyhow::Result<Self> {
        let defaults = &settings.dispatch;
        let qsys = typed.qsys.unwrap_or(defaults.qsys);
        if qsys.role == JobRole::Direct {
            let worker = QueueSystem { role: JobRole::Workers, ..qsys };
            return Err(usage(format!("`{qsys}` runs scripts directly, and has no pool"))).hint(format!(
                "`--qsys {worker}` starts workers through it; `submit --qsys {qsys}` needs no pool"
            ));
        }
        for (option, number) in [("--workers", typed.workers), ("--nthr", typed.nthr)] {
            if let Some(number) = number.filter(|number| *number < 0) {
                return Err(usage(format!("{option} is {number}"))).hint("name a number from 0 on");
            }
        }
        if let (Some(min), Some(max)) = (typed.workers, typed.max_workers)
            && min > i64::from(max)
        {
            let words = format!("--max-workers {max} is below --workers {min}");
            return Err(usage(words)).hint("`--workers` is the minimum, `--max-workers` the maximum");
        }
        let least = i64::from(typed.max_workers.is_none());
        let workers = typed.workers.unwrap_or(i64::from(defaults.workers)).max(least);
        let threads = typed.nthr.unwrap_or(i64::from(defaults.threads)).max(1);
        let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let workers = number(workers);
        let max_workers = typed.max_workers.unwrap_or(workers).max(workers);
        let roots = typed.root.iter().map(|root| real_path("--root", root));
        let mut roots = roots.collect::<anyhow::Result<Vec<_>>>()?;
        let mut allowed_env = typed.allow_env.clone();
        roots.sort();
        allowed_env.sort();
        let hooks = real_hooks(typed.before.as_deref(), typed.after.as_deref())?;
        Ok(Self { qsys, workers, max_workers, threads: number(threads), roots, allowed_env, hooks })
    }
}

/// The scripts that workers run before the first and after the last.
pub fn real_hooks(before: Option<&Path>, after: Option<&Path>) -> anyhow::Result<Hooks> {
    let before = before.map(|path| real_path("--before", path)).transpose()?;
    let after = after.map(|path| real_path("--after", path)).transpose()?;
    Ok(Hooks { before, after })
}

fn real_path(option: &str, path: &Path) -> anyhow::Result<PathBuf> {
    let real = path.canonicalize().with_context(|| format!("cannot find {option} {}", path.display()));
    real.hint(format!("{option} names what exists; a relative path begins in the working directory"))
}

/// Runs the command.
pub async fn run(typed: DispatchStartArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let wanted = PoolSizeArg::of(&typed, settings)?;
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    match DispatchClient::connect(&folder).await {
        Ok(mut client) => {
            if let Some(status) = running_status(&mut client, &folder, &typed).await? {
                check_compatible(&status, &wanted)?;
                return print_pool(&folder, &status, "reused", settings);
            }
        }
        // There may be a server that this user must neither talk to nor replace.
        Err(error) if is_foreign(&error) => {
            let hint = connection_hint(&error, &folder).unwrap_or_default();
            return Err(error).hint(hint);
        }
        Err(_) => {}
    }
    if let Err(error) = prepare_folder(&folder) {
        let hint = error.hint().unwrap_or_else(|| DIR_HINT.to_owned());
        return Err(error).context("cannot use the pool's folder").hint(hint);
    }
    let log = folder.join("server.log");
    let mut server = launch(&typed, settings, &folder, &log)?;
    let limit = Instant::now() + typed.wait_limit.0;
    let mut bar = None;
    loop {
        let ended = server.try_wait()?;
        let found = DispatchClient::connect(&folder).await;
        // This server may have lost a race against another: then the other is used.
        if let (Some(status), Err(_)) = (ended, &found) {
            let log_text = std::fs::read_to_string(&log).unwrap_or_default();
            let last = log_text.lines().rev().take(5).collect::<Vec<_>>().into_iter().rev();
            let last = last.collect::<Vec<_>>().join("\n  ");
            anyhow::bail!("the server ended at once ({status}):\n  {last}");
        }
        if let Ok(mut client) = found
            && let Ok(status) = ask_status(&mut client).await
        {
            if ended.is_some() {
                check_compatible(&status, &wanted)?;
            }
            if status.workers.len() >= wanted.workers as usize {
                return print_pool(&folder, &status, "up", settings);
            }
            let bar = bar.get_or_insert_with(|| settings.output.bar("{spinner} {msg}"));
            bar.set_message(format!("{} of {} workers are connected", status.workers.len(), wanted.workers));
        }
        if Instant::now() >= limit {
            let words = format!("not all workers were connected after {:?}", typed.wait_limit.0);
            return Err(anyhow::anyhow!(words))
                .hint("the pool continues; `longshore dispatch explain` says why");
        }
        tokio::time::sleep(POLL_INTERVAL / 4).await;
    }
}

/// The status of a server that works. One that shuts down is waited for: `None`.
async fn running_status(
    client: &mut DispatchClient,
    folder: &Path,
    typed: &DispatchStartArgs,
) -> anyhow::Result<Option<PoolStatus>> {
    let status = match ask_status(client).await {
        Ok(status) if status.state == "working" => return Ok(Some(status)),
        // Without a status it has ended meanwhile, or is about to.
        status => status.ok(),
    };
    let ended = wait_for_end(client, folder, status.as_ref());
    let ended = tokio::time::timeout(typed.wait_limit.0, ended).await;
    ended
        .map_err(|_| anyhow::anyhow!("the pool in this folder shuts down since {:?}", typed.wait_limit.0))
        .hint("its running scripts may end first; `longshore dispatch stop --now` interrupts them")??;
    Ok(None)
}

/// Whether other users can read or replace the access file, or a server of another version runs.
fn is_foreign(error: &ClientError) -> bool {
    let ClientError::Connect(error) = error else { return false };
    matches!(error, ConnectError::Access(AccessError::Untrusted(_)) | ConnectError::Refused(_))
}

fn print_pool(
    folder: &Path,
    status: &PoolStatus,
    word: &str,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    settings.output.answer(status, || {
        let threads: u32 = status.workers.iter().map(|worker| worker.threads).sum();
        let (workers, base) = (status.workers.len(), &status.base);
        format!("the pool in {} is {word}: {workers} workers by {base}, {threads} threads", folder.display())
    })?;
    Ok(ExitCode::Good)
}

/// A pool is reused only if it has at least what is requested, and restricts scripts in the same way.
fn check_compatible(status: &PoolStatus, wanted: &PoolSizeArg) -> anyhow::Result<()> {
    let base = wanted.qsys.base.name();
    let problem = if status.base != base {
        format!("its workers are started by {}, not {base}", status.base)
    } else if status.threads < wanted.threads {
        format!("its workers have {} threads, not {}", status.threads, wanted.threads)
    } else if status.size.1 < wanted.workers {
        format!("it has {} workers, not {}", status.size.1, wanted.workers)
    } else if status.roots != wanted.roots {
        let list = |roots: &[PathBuf]| match roots {
            [] => "no roots".to_owned(),
            roots => roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", "),
        };
        format!("its workers have other roots: {}, not {}", list(&status.roots), list(&wanted.roots))
    } else if status.allowed_env != wanted.allowed_env {
        "its workers have other values of --allow-env".to_owned()
    } else {
        return Ok(());
    };
    Err(anyhow::anyhow!("the running pool cannot be used: {problem}"))
        .hint("`longshore dispatch stop` stops it, `dispatch scale` enlarges it, `--dir` names another")
}

/// Starts the server as a process of its own. It detaches from the terminal itself.
fn launch(
    typed: &DispatchStartArgs,
    settings: &Settings,
    folder: &Path,
    log: &Path,
) -> anyhow::Result<Child> {
    let output = File::options().create(true).append(true).mode(0o600).open(log);
    let output = output.with_context(|| format!("cannot write {}", log.display()));
    let output = output.hint(DIR_HINT)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["dispatch", "serve"]).args(forwarded_args()).arg("--dir").arg(folder);
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

/// The arguments after `dispatch start`, without the options that `launch` sets.
fn forwarded_args() -> Vec<std::ffi::OsString> {
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
