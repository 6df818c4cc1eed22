//! Helpers for tests with worker processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longshore_pool::{PoolSettings, Program, WorkerPool};

/// The scripted Python worker, with this encoding and behaviour at start.
pub(crate) fn worker(encoding: &str, start: &str) -> Program {
    Program::command("python3").arg(fixture("worker.py")).args([encoding, start])
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A program of `examples/`, which cargo builds with the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.parent().and_then(Path::parent).unwrap();
    let path = target.join("examples").join(name);
    assert!(path.exists(), "{} is not built", path.display());
    path
}

/// Settings for a fixed number of workers.
pub(crate) fn exactly(workers: usize) -> PoolSettings {
    let mut settings = PoolSettings::default();
    (settings.min, settings.max) = (workers, workers);
    settings
}

pub(crate) async fn pool(program: Program, settings: PoolSettings) -> WorkerPool {
    WorkerPool::processes("test", program, settings).await.unwrap()
}

/// Polls until `holds` is true; for real processes, which end at their own time.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < limit, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether the process exists, zombies included.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Children of this process that have exited and were not reaped.
pub(crate) fn zombies() -> Vec<u32> {
    let own = std::process::id().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        fields.first() == Some(&"Z") && fields.get(1) == Some(&own.as_str())
    })
    .collect()
}

/// Whether the process runs. A zombie does not count: an orphaned grandchild belongs to init, which
/// may reap it late.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
