//! Longshore: a server and a worker, each in its own process, with a store on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longshore::store::Retention;
use longshore::{BatchId, Policy, Priority, RetryPolicy, TenantId, UnitId};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{
    ArrayItems, ClientRequest, Items, PoolStatus, ServerReply, Submission, SubmitConditions,
};
use longshore_dispatch::script::{Script, ScriptOutput};
use longshore_dispatch::server::{Server, ServerOptions, Timing};
use longshore_dispatch::worker::{self, Hooks};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::floor::{SLOTS, ScriptFolder};
use crate::process::{Process, Used};
use crate::simulated_worker;

/// The poll interval for the state of an array.
const LOOK: Duration = Duration::from_millis(20);

/// The duration of a run, and the resources that server and worker used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) time: Duration,
    pub(crate) server: Duration,
    pub(crate) worker: Duration,
}

/// Runs the server role.
pub(crate) fn serve(folder: &Path) -> Result<()> {
    runtime()?.block_on(async {
        let store = SqliteStore::open(&folder.join("units.db"), SqliteOptions::default())?;
        let server = Server::bind(ServerOptions {
            folder: folder.to_path_buf(),
            state: folder.join("state"),
            store: Arc::new(store),
            listen: vec![[127, 0, 0, 1].into()],
            launch: None,
            timing: Timing::default(),
            retention: Retention::default(),
        })
        .await?;
        server.run().await?;
        Ok(())
    })
}

/// Runs the worker role: many workers in one process. With `takes`, they simulate scripts of this many milliseconds.
pub(crate) fn work(folder: &Path, count: usize, threads: u32, takes: Option<u64>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut workers = JoinSet::new();
        let mut lines = Vec::new();
        for _ in 0..count {
            if let Some(takes) = takes.map(Duration::from_millis) {
                let link = simulated_worker::connect(folder).await?;
                workers.spawn(simulated_worker::work(link, threads, takes));
                continue;
            }
            let (tell, commands) = mpsc::channel(1);
            lines.push(tell);
            let working = worker::run(options(folder, threads), commands, |_| {});
            workers.spawn(async { Ok(working.await.map(drop)?) });
        }
        while let Some(ended) = workers.join_next().await {
            ended??;
        }
        Ok(())
    })
}

fn options(folder: &Path, threads: u32) -> worker::WorkerOptions {
    worker::WorkerOptions {
        folder: folder.to_path_buf(),
        threads,
        resources: BTreeMap::new(),
        resource_names: BTreeMap::new(),
        launch: None,
        lifetime: None,
        idle: None,
        server_lost: Duration::from_secs(30),
        drain: Duration::from_secs(30),
        roots: Vec::new(),
        allowed_env: Vec::new(),
        env: std::env::vars_os().filter(|(name, _)| name == "PATH").collect(),
        hooks: Hooks::default(),
        kills_orphans: false,
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A pool with its own server and worker processes.
pub(crate) struct Pool {
    folder: TempDir,
    server: Process,
    workers: Option<Process>,
    runtime: Runtime,
}

impl Pool {
    pub(crate) fn start(count: usize, threads: u32, takes: Option<u64>) -> Result<Self> {
        let mut pool = Self::without_workers()?;
        pool.join(count, threads, takes)?;
        Ok(pool)
    }

    fn without_workers() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = Process::start(&["server", &folder.path().display().to_string()])?;
        until(|| folder.path().join("access.json").exists())?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { folder, server, workers: None, runtime })
    }

    /// Starts workers and waits until they are connected.
    fn join(&mut self, count: usize, threads: u32, takes: Option<u64>) -> Result<()> {
        let path = self.folder.path().display().to_string();
        let (count_text, threads) = (count.to_string(), threads.to_string());
        let takes = takes.map(|time| time.to_string());
        let mut words = vec!["workers", &path, &count_text, &threads];
        words.extend(takes.as_deref());
        self.workers = Some(Process::start(&words)?);
        until(|| self.status().is_ok_and(|status| status.workers.len() >= count))
    }

    pub(crate) fn status(&self) -> Result<PoolStatus> {
        match self.ask(&ClientRequest::Status)? {
            ServerReply::Status(status) => Ok(*status),
            other => bail!("{other:?}"),
        }
    }

    pub(crate) fn ask(&self, request: &ClientRequest) -> Result<ServerReply> {
        self.runtime.block_on(async {
            let mut client = DispatchClient::connect(self.folder.path()).await?;
            Ok(client.request(request).await?)
        })
    }

    pub(crate) fn used(&self) -> Result<(Used, Used)> {
        let workers = self.workers.as_ref().map_or(Ok(Used::default()), Process::used)?;
        Ok((self.server.used()?, workers))
    }

    /// Submits an array.
    fn submit(&self, script: &Path, count: u64) -> Result<BatchId> {
        let batch = BatchId::new(format!("array-{}", UnitId::new()))?;
        self.ask(&ClientRequest::Submit(Box::new(array(script, batch.clone(), count))))?;
        Ok(batch)
    }

    /// Waits until an array has ended.
    fn wait(&self, batch: &BatchId, count: u64) -> Result<()> {
        self.runtime.block_on(async {
            let mut client = DispatchClient::connect(self.folder.path()).await?;
            loop {
                match client.request(&ClientRequest::Steer(None, batch.clone(), None)).await? {
                    ServerReply::Steered(array) if array.counts.done == count => return Ok(()),
                    ServerReply::Steered(array) if array.counts.failed > 0 => {
                        bail!("scripts failed: {array:?}")
                    }
                    ServerReply::Steered(_) => tokio::time::sleep(LOOK).await,
                    other => bail!("{other:?}"),
                }
            }
        })
    }

    /// The duration and the resources used.
    fn measured(&self, run: impl FnOnce() -> Result<()>) -> Result<Run> {
        let (server, worker) = self.used()?;
        let begin = Instant::now();
        run()?;
        let time = begin.elapsed();
        let (server_then, worker_then) = self.used()?;
        Ok(Run { time, server: server_then.cpu - server.cpu, worker: worker_then.cpu - worker.cpu })
    }
}

/// Waits until a condition holds, for half a minute at most.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > Duration::from_secs(30) {
            bail!("the pool did not come up");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn script(path: &Path) -> Script {
    let dir = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    Script {
        path: path.to_path_buf(),
        text: None,
        args: Vec::new(),
        root: Some(dir.clone()),
        dir,
        name: None,
        env: BTreeMap::new(),
        output: ScriptOutput::Nothing,
        time: None,
        content: None,
        sentinels: None,
        limits: BTreeMap::new(),
        pin: false,
    }
}

fn submission(path: &Path, items: Items) -> Submission {
    Submission {
        tenant: TenantId::default(),
        script: script(path),
        items,
        priority: Priority::NORMAL,
        threads: 1,
        resources: BTreeMap::new(),
        after: Vec::new(),
        policy: Policy { retry: RetryPolicy::never(), ..Policy::default() },
        initiated_by: String::new(),
        awaited: true,
        conditions: SubmitConditions::default(),
    }
}

/// An array job of one script.
pub(crate) fn array(path: &Path, batch: BatchId, count: u64) -> Submission {
    let items = ArrayItems::Ranges(vec![(1, count)]);
    submission(path, Items::Each { batch, items, max_running: None, max_failures: None })
}

/// Measures empty scripts on one worker.
pub(crate) fn scripts(place: &ScriptFolder) -> Result<Run> {
    let pool = Pool::start(1, SLOTS as u32, None)?;
    pool.measured(|| pool.wait(&pool.submit(&place.script(), place.scripts)?, place.scripts))
}

/// Measures the server with one simulated worker; the scripts are in the store before it starts.
pub(crate) fn idle(count: u64) -> Result<(u64, Run)> {
    let place = ScriptFolder::new(count)?;
    let mut pool = Pool::without_workers()?;
    let batch = pool.submit(&place.script(), count)?;
    let (begin, server) = (Instant::now(), pool.server.used()?.cpu);
    pool.join(1, SLOTS as u32, Some(0))?;
    pool.wait(&batch, count)?;
    let time = begin.elapsed();
    let server = pool.server.used()?.cpu - server;
    Ok((count, Run { time, server, worker: Duration::ZERO }))
}

/// Measures one script on an idle pool, from submission to its recorded end, and bash alone: medians.
pub(crate) fn latency(count: usize) -> Result<(Duration, Duration)> {
    let place = ScriptFolder::new(1)?;
    let pool = Pool::start(1, SLOTS as u32, None)?;
    let (mut ours, mut bash) = (Vec::new(), Vec::new());
    let mut client = pool.runtime.block_on(DispatchClient::connect(pool.folder.path()))?;
    for _ in 0..count {
        let begin = Instant::now();
        Command::new("/bin/bash").arg(place.script()).stdin(Stdio::null()).status()?;
        bash.push(begin.elapsed());
        let unit = UnitId::new();
        let submission = submission(&place.script(), Items::Once(unit));
        let begin = Instant::now();
        pool.runtime.block_on(async {
            client.request(&ClientRequest::Submit(Box::new(submission))).await?;
            client.request(&ClientRequest::Unit(unit, Duration::from_secs(10))).await
        })?;
        ours.push(begin.elapsed());
    }
    Ok((median(ours), median(bash)))
}

/// Measures `longshore submit`, one process per script: the median.
pub(crate) fn submit(binary: Option<&Path>, count: usize) -> Result<Option<Duration>> {
    let beside = std::env::current_exe()?.with_file_name("longshore");
    let binary = binary.map_or(beside, PathBuf::from);
    if !binary.exists() {
        return Ok(None);
    }
    let place = ScriptFolder::new(1)?;
    let pool = Pool::start(1, SLOTS as u32, Some(0))?;
    let mut times = Vec::new();
    for _ in 0..count {
        let begin = Instant::now();
        let mut command = Command::new(&binary);
        command.arg("submit").arg("--script").arg(place.script()).arg("--dir");
        command.arg(pool.folder.path()).current_dir(place.folder.path()).stdout(Stdio::null());
        let status = command.status().context("cannot run longshore")?;
        anyhow::ensure!(status.success(), "longshore submit: {status}");
        times.push(begin.elapsed());
    }
    Ok(Some(median(times)))
}

/// The median.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
