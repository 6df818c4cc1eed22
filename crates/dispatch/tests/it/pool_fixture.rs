//! A server and workers in one process, with their own store and folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore::store::{Queries, Queues, Retention};
use longshore::{BatchId, Counts, Policy, Priority, RetryPolicy, Scope, Store, TenantId, Unit, UnitId};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{
    ArrayItems, ClientRequest, Items, ServerReply, ShutdownMode, Submission, SubmitConditions,
};
use longshore_dispatch::script::{Script, ScriptOutput};
use longshore_dispatch::server::{Server, ServerControl, ServerError, ServerOptions, ServerReport, Timing};
use longshore_dispatch::worker::{self, DispatchWorkerError, Hooks, ProgramCommand, WorkerSummary};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::{Fault, FaultyStore};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Timeout that no successful test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A pool for one test.
pub(crate) struct Pool {
    pub(crate) folder: TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) control: ServerControl,
    server: Option<JoinHandle<Result<ServerReport, ServerError>>>,
}

/// A worker of a pool.
pub(crate) struct WorkerHandle {
    pub(crate) commands: mpsc::Sender<ProgramCommand>,
    pub(crate) summary: JoinHandle<Result<WorkerSummary, DispatchWorkerError>>,
}

#[expect(clippy::disallowed_methods, reason = "a test ends with its tasks")]
fn spawn<F: Future<Output: Send + 'static> + Send + 'static>(task: F) -> JoinHandle<F::Output> {
    tokio::spawn(task)
}

impl Pool {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.db");
        let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        Self::start_on(folder, Arc::clone(&store) as _, store).await
    }

    /// A pool with a server that gets this fault from its store.
    pub(crate) async fn start_with_fault(operation: &'static str, nth: u64, fault: Fault) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.db");
        let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        let faulty = FaultyStore::new(Arc::clone(&store) as _).with_fault(operation, nth, fault);
        Self::start_on(folder, Arc::new(faulty), store).await
    }

    async fn start_on(folder: TempDir, used: Arc<dyn Store>, store: Arc<SqliteStore>) -> Self {
        let options = ServerOptions { store: used, ..options(folder.path(), &store) };
        let server = Server::bind(options).await.unwrap();
        let control = server.control();
        Self { folder, store, control, server: Some(spawn(server.run())) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a script.
    pub(crate) fn script(&self, name: &str, text: &str) -> Script {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        script(&path, self.folder.path())
    }

    pub(crate) fn worker(&self, threads: u32) -> WorkerHandle {
        self.worker_with(worker_options(self.folder.path(), threads))
    }

    pub(crate) fn worker_with(&self, options: worker::WorkerOptions) -> WorkerHandle {
        let (commands, receiver) = mpsc::channel(4);
        WorkerHandle { commands, summary: spawn(worker::run(options, receiver, |_| {})) }
    }

    pub(crate) async fn client(&self) -> DispatchClient {
        DispatchClient::connect(self.folder.path()).await.unwrap()
    }

    pub(crate) async fn submit(&self, submission: Submission) -> u64 {
        match self.client().await.request(&ClientRequest::Submit(Box::new(submission))).await.unwrap() {
            ServerReply::Submitted { units, .. } => units,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn counts(&self) -> Counts {
        self.store.totals(&Scope::All, &Queues::All).await.unwrap().counts
    }

    /// Waits until all units have ended.
    pub(crate) async fn wait_until_idle(&self) -> Counts {
        eventually(async || {
            let counts = self.counts().await;
            (counts.ready + counts.leased + counts.scheduled + counts.blocked == 0).then_some(counts)
        })
        .await
    }

    pub(crate) async fn unit(&self, id: UnitId) -> Unit {
        self.store.unit(&Scope::All, id).await.unwrap()
    }

    /// Waits until the unit has ended.
    pub(crate) async fn wait_for_end(&self, id: UnitId) -> Unit {
        eventually(async || Some(self.unit(id).await).filter(|unit| unit.state.is_final())).await
    }

    /// Ends the server without a shutdown, like a kill.
    pub(crate) async fn kill_server(&mut self) {
        let server = self.server.take().unwrap();
        server.abort();
        let _ = server.await;
    }

    pub(crate) async fn start_server_again(&mut self) {
        let server = Server::bind(options(self.folder.path(), &self.store)).await.unwrap();
        self.control = server.control();
        self.server = Some(spawn(server.run()));
    }

    /// A second server for the same pool, with its own state.
    pub(crate) async fn second_server(&self) -> Result<Server, ServerError> {
        let state = self.path("elsewhere");
        Server::bind(ServerOptions { state, ..options(self.folder.path(), &self.store) }).await
    }

    pub(crate) async fn drain(mut self) -> ServerReport {
        self.control.shut_down(ShutdownMode::Drain(LONG)).await;
        self.server.take().unwrap().await.unwrap().unwrap()
    }
}

fn options(folder: &Path, store: &Arc<SqliteStore>) -> ServerOptions {
    let timing = Timing {
        heartbeat_interval: Duration::from_millis(100),
        worker_ttl: Duration::from_secs(2),
        reconnect_grace: Duration::from_millis(300),
        restart_grace: Duration::from_secs(10),
        // The heartbeat that returns cancellations comes every ten minutes, unless one is
        // triggered.
        store_ttl: Duration::from_secs(3600),
        ..Timing::default()
    };
    ServerOptions {
        folder: folder.to_path_buf(),
        state: folder.join("state"),
        store: store.clone(),
        listen: vec![[127, 0, 0, 1].into()],
        launch: None,
        timing,
        retention: Retention::default(),
    }
}

pub(crate) fn worker_options(folder: &Path, threads: u32) -> worker::WorkerOptions {
    worker::WorkerOptions {
        folder: folder.to_path_buf(),
        threads,
        resources: BTreeMap::new(),
        resource_names: BTreeMap::new(),
        launch: None,
        lifetime: None,
        idle: None,
        server_lost: LONG,
        drain: LONG,
        roots: Vec::new(),
        allowed_env: Vec::new(),
        env: std::env::vars_os().filter(|(name, _)| name == "PATH").collect(),
        hooks: Hooks::default(),
        kills_orphans: false,
    }
}

pub(crate) fn script(path: &Path, dir: &Path) -> Script {
    Script {
        path: path.to_path_buf(),
        text: None,
        args: Vec::new(),
        dir: dir.to_path_buf(),
        root: Some(dir.to_path_buf()),
        name: None,
        env: BTreeMap::new(),
        output: ScriptOutput::default(),
        time: None,
        content: None,
        sentinels: None,
        limits: BTreeMap::new(),
        pin: false,
    }
}

/// A script to run once.
pub(crate) fn once(script: Script) -> (UnitId, Submission) {
    let id = UnitId::new();
    let submission = Submission {
        tenant: TenantId::default(),
        script,
        items: Items::Once(id),
        priority: Priority::NORMAL,
        threads: 1,
        resources: BTreeMap::new(),
        after: Vec::new(),
        policy: Policy { retry: RetryPolicy::never(), ..Policy::default() },
        initiated_by: String::new(),
        awaited: false,
        conditions: SubmitConditions::default(),
    };
    (id, submission)
}

/// A script to run once per number.
pub(crate) fn array(script: Script, name: &str, first: u64, last: u64) -> Submission {
    let items = Items::Each {
        batch: BatchId::new(name).unwrap(),
        items: ArrayItems::Ranges(vec![(first, last)]),
        max_running: None,
        max_failures: None,
    };
    Submission { items, ..once(script).1 }
}

/// Repeats `look` until it returns a value.
pub(crate) async fn eventually<T>(mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = poll().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, looking).await.expect("it should have happened by now")
}
