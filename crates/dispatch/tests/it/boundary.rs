//! Other users' state is not used, and a worker's roots bound what submitters choose.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use longshore::store::{TenantChange, Tenants};
use longshore::{Client, Kind, NewUnit, Rights, Scope, TenantId, Unit, UnitState};
use longshore_dispatch::script::{RunReport, Script, ScriptOutput};
use longshore_dispatch::server::{ServerError, prepare_state};
use longshore_dispatch::worker::{DispatchWorkerError, WorkerOptions};
use longshore_trusted_path::PathError;

use crate::pool_fixture::{Pool, WorkerHandle, once, worker_options};

/// A user that is neither root nor the one that runs the tests.
const STRANGER: u32 = 61_234;

/// A pool with a worker that has the root `jobs`, with one script in it.
struct BoundedPool {
    pool: Pool,
    root: PathBuf,
    /// The worker stops when its handle is dropped.
    _worker: WorkerHandle,
}

impl BoundedPool {
    async fn start(script: &str) -> Self {
        let pool = Pool::start().await;
        let root = pool.path("jobs");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("ok.sh"), script).unwrap();
        let _worker = pool.worker_with(options(&pool));
        Self { pool, root, _worker }
    }

    /// The script as a tenant sends it: with no root of its own.
    fn script(&self) -> Script {
        let Self { root, .. } = self;
        Script { root: None, ..crate::pool_fixture::script(&root.join("ok.sh"), root) }
    }

    async fn run(&self, script: Script) -> Unit {
        let (id, submission) = once(script);
        self.pool.submit(submission).await;
        self.pool.wait_for_end(id).await
    }

    async fn is_refused(&self, script: Script, reason: &str) {
        let unit = self.run(script).await;
        assert_eq!(unit.state, UnitState::Failed, "{reason}");
        let failure = unit.failure.unwrap();
        assert!(failure.message.contains(reason), "{failure}");
    }
}

fn options(pool: &Pool) -> WorkerOptions {
    let allowed_env = vec!["SEED".into()];
    WorkerOptions { roots: vec![pool.path("jobs")], allowed_env, ..worker_options(pool.folder.path(), 1) }
}

fn files(stdout: &Path) -> ScriptOutput {
    ScriptOutput::Files { stdout: stdout.to_path_buf(), stderr: None }
}

#[tokio::test]
async fn a_tenants_variables_cannot_run_code_before_an_allowed_script() {
    let pool = BoundedPool::start("echo seed=$SEED").await;
    let evil = pool.pool.path("evil");
    for (name, value) in [
        ("BASH_ENV", format!("$(touch {})", evil.display())),
        ("ENV", "/tmp/x".into()),
        ("LD_PRELOAD", "/tmp/x.so".into()),
        ("SHELLOPTS", "xtrace".into()),
        ("BASH_FUNC_echo%%", format!("() {{ touch {}; }}", evil.display())),
        ("PATH", "/tmp".into()),
        ("LONGSHORE_REAPER", "none".into()),
        ("OTHER", "1".into()),
    ] {
        let mut script = pool.script();
        script.env.insert(name.into(), value);
        pool.is_refused(script, name).await;
    }
    assert!(!evil.exists());
    let mut script = pool.script();
    script.env.insert("SEED".into(), "7".into());
    let report: RunReport = pool.run(script).await.result.unwrap().parse().unwrap();
    assert_eq!(report.tail, "seed=7\n");
}

#[tokio::test]
async fn a_tenants_script_runs_only_on_a_worker_with_roots() {
    let bounded = BoundedPool::start("echo said").await;
    let unbounded = Pool::start().await;
    let _worker = unbounded.worker(1);
    let mut ended = Vec::new();
    for pool in [&bounded.pool, &unbounded] {
        let kind = Kind::new("script").unwrap();
        let tenant = TenantId::new("acme").unwrap();
        let opened = TenantChange { allowed_kinds: Some([kind.clone()].into()), ..TenantChange::default() };
        pool.store.put_tenant(&Scope::All, &tenant, opened).await.unwrap();
        let payload = serde_json::to_value(bounded.script()).unwrap();
        let unit = NewUnit { tenant, rights: Rights::Tenant, ..NewUnit::new(kind, payload) };
        let id = unit.id;
        Client::new(pool.store.clone()).send(unit).await.unwrap();
        ended.push(pool.wait_for_end(id).await);
    }
    assert_eq!(ended[0].state, UnitState::Done, "{:?}", ended[0].failure);
    let failure = ended[1].failure.as_ref().unwrap();
    assert!(failure.message.contains("no roots"), "{failure}");
}

#[tokio::test]
async fn output_sentinels_and_the_working_directory_stay_inside_the_roots() {
    let pool = BoundedPool::start("echo said").await;
    let (root, outside) = (pool.root.clone(), pool.pool.path("outside"));
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    pool.is_refused(Script { dir: outside.clone(), ..pool.script() }, "not inside").await;
    pool.is_refused(Script { dir: root.join("link"), ..pool.script() }, "symbolic link").await;
    for (output, reason) in [
        (files(&outside.join("x.out")), "not inside"),
        (files(&root.join("../outside/x.out")), "`..`"),
        (files(&root.join("link/x.out")), "symbolic link"),
        // Or a script could be written with the output of another.
        (files(&root.join("new.sh")), "must end with"),
        (ScriptOutput::Stream(outside.clone()), "not inside"),
    ] {
        pool.is_refused(Script { output, ..pool.script() }, reason).await;
    }
    pool.is_refused(Script { sentinels: Some(outside.clone()), ..pool.script() }, "not inside").await;
    let named = Some("../../outside/x".to_owned());
    pool.is_refused(Script { sentinels: Some(root.clone()), name: named, ..pool.script() }, "`/`").await;
    assert_eq!(outside.read_dir().unwrap().count(), 0);
    let output = files(&root.join("logs/%a.out"));
    let sentinels = Some(root.clone());
    assert_eq!(pool.run(Script { output, sentinels, ..pool.script() }).await.state, UnitState::Done);
    assert_eq!(fs::read_to_string(root.join("logs/1.out")).unwrap(), "said\n");
    assert!(root.join("JOB_FINISHED_1").exists() && root.join("EXIT_CODE_JOB_1").exists());
    let output = ScriptOutput::Stream(root.join("streams"));
    assert_eq!(pool.run(Script { output, ..pool.script() }).await.state, UnitState::Done);
    assert_eq!(root.join("streams").read_dir().unwrap().count(), 2);
    let written = Script { path: root.join("logs/1.out"), ..pool.script() };
    pool.is_refused(written, "name of an output file").await;
}

#[tokio::test]
async fn a_script_knows_its_real_path() {
    let pool = BoundedPool::start("echo $0").await;
    std::os::unix::fs::symlink(pool.root.join("ok.sh"), pool.root.join("link.sh")).unwrap();
    for name in ["ok.sh", "link.sh"] {
        let unit = pool.run(Script { path: pool.root.join(name), ..pool.script() }).await;
        let report: RunReport = unit.result.unwrap().parse().unwrap();
        let real = pool.root.join("ok.sh").canonicalize().unwrap();
        assert_eq!(report.tail, format!("{}\n", real.display()));
    }
}

#[tokio::test]
async fn a_root_or_script_that_other_users_can_write_is_refused() {
    let pool = BoundedPool::start("echo said").await;
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set(&pool.root.join("ok.sh"), 0o666);
    pool.is_refused(pool.script(), "can be changed by other users").await;
    set(&pool.root.join("ok.sh"), 0o600);
    set(&pool.root, 0o777);
    let worker = pool.pool.worker_with(options(&pool.pool));
    let refused = worker.summary.await.unwrap().unwrap_err();
    assert!(matches!(refused, DispatchWorkerError::Root(_, PathError::Writable { .. })), "{refused}");
    let allowed_env = vec!["LD_PRELOAD".to_owned()];
    let worker = pool.pool.worker_with(WorkerOptions { allowed_env, ..options(&pool.pool) });
    let refused = worker.summary.await.unwrap().unwrap_err();
    assert!(matches!(refused, DispatchWorkerError::ForbiddenVariable(_)), "{refused}");
}

#[tokio::test]
async fn a_server_refuses_a_state_folder_that_other_users_can_use() {
    let pool = Pool::start().await;
    let state = pool.path("elsewhere");
    prepare_state(&state).unwrap();
    fs::write(state.join("units.db"), "").unwrap();
    let refused = |error| matches!(error, ServerError::State(PathError::Accessible { .. }));
    assert!(refused(pool.second_server().await.err().unwrap()), "units.db is readable");
    fs::set_permissions(state.join("units.db"), Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(pool.second_server().await, Err(ServerError::AlreadyServed(_))));
    fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
    assert!(refused(pool.second_server().await.err().unwrap()));
    fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
    if chown(state.join("units.db"), Some(STRANGER), None).is_err() {
        return eprintln!("SKIPPED: only root can give a file to another user");
    }
    let error = pool.second_server().await.err().unwrap();
    assert!(matches!(error, ServerError::State(PathError::WrongOwner { owner: STRANGER, .. })), "{error}");
}
