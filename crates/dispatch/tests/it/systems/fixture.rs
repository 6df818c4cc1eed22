//! A folder with scripts, and a base system that runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_dispatch::system::{
    Exit, Job, JobEnd, JobId, JobProgram, JobState, PollPolicy, RetryBackoff, System, SystemConfig,
    wait_for_jobs,
};
use tempfile::TempDir;

/// Poll intervals of the tests.
pub(super) const PACE: PollPolicy = PollPolicy {
    first_interval: Duration::from_millis(50),
    max_interval: Duration::from_millis(500),
    outage_limit: Duration::from_secs(60),
};
/// Timeout that no successful test reaches.
const LONG: Duration = Duration::from_secs(120);

/// The folder's name needs quoting.
pub(super) struct SystemFixture {
    pub(super) system: Box<dyn System>,
    folder: TempDir,
    /// Options of every job.
    options: Vec<String>,
}

impl SystemFixture {
    pub(super) fn new(system: Box<dyn System>) -> Self {
        Self::with_options(system, &[])
    }

    pub(super) fn with_options(system: Box<dyn System>, options: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("it's a \"place\" ").tempdir().unwrap();
        Self { system, folder, options: options.iter().map(ToString::to_string).collect() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A job that runs a script of these lines.
    pub(super) fn job(&self, lines: &str) -> Job {
        let number = fs::read_dir(self.folder.path()).unwrap().count();
        let path = self.path(&format!("script {number}.sh"));
        fs::write(&path, format!("{lines}\n")).unwrap();
        let options = self.options.clone();
        Job { options, ..Job::new("a job's name", JobProgram::script(path), self.folder.path()) }
    }

    pub(super) async fn submit(&self, lines: &str) -> JobId {
        self.system.submit(&self.job(lines)).await.unwrap()
    }

    pub(super) async fn state(&self, id: &JobId) -> JobState {
        let states = self.system.status(std::slice::from_ref(id)).await.unwrap();
        states.into_iter().next().unwrap().1
    }

    /// Waits until a job has ended.
    pub(super) async fn end(&self, id: &JobId) -> JobEnd {
        let ids = std::slice::from_ref(id);
        let ends = tokio::time::timeout(LONG, wait_for_jobs(self.system.as_ref(), ids, PACE)).await;
        *ends.unwrap().unwrap().values().next().unwrap()
    }

    /// Waits until a file exists, and returns its content.
    pub(super) async fn file(&self, name: &str) -> String {
        let path = self.path(name);
        eventually(async || path.exists()).await;
        self.read(name)
    }

    /// Waits until a job runs.
    pub(super) async fn running(&self, id: &JobId) {
        eventually(async || self.state(id).await == JobState::Running).await;
    }
}

/// The end of a program that exited with this code.
pub(super) fn code(code: i32) -> JobEnd {
    JobEnd::exited(Exit::Code(code))
}

/// Repeats `is_so` until it returns true.
pub(super) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let polling = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, polling).await.expect("it does not happen");
}

/// Settings with these environment variables and few retries.
pub(super) fn site<const N: usize>(env: [(&str, String); N]) -> SystemConfig {
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let short = Duration::from_millis(20);
    SystemConfig {
        env,
        retries: RetryBackoff { max_attempts: 2, first_pause: short, max_pause: short },
        ..SystemConfig::default()
    }
}

/// Whether a process runs; a zombie does not.
pub(super) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
