//! `bounded`, with real processes on one file that are killed and stopped.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::chaos::{ChaosProcessConfig, ChaosTest, run_process};

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_the_permits_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "permits_chaos::one_of_many", "--ignored"]);
        Ok(command)
    };
    // There is no server to restart.
    let storm = ChaosTest { restarts: 0, ..ChaosTest::from_env() };
    let place = path.to_str().unwrap();
    let report = storm.run(open(&path), place, &start, &mut || ()).await.unwrap();
    report.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a process of the storm above, which starts it"]
async fn one_of_many() {
    let orders = ChaosProcessConfig::from_env().unwrap();
    let store = open(Path::new(&orders.pool_address));
    run_process(orders, store).await;
}
