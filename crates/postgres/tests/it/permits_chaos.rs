//! `bounded`, with real processes that are killed and stopped, and a server that crashes midway.

use std::process::Command;
use std::sync::Arc;

use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::chaos::{ChaosProcessConfig, ChaosTest, run_process};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::block_in_place;

async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url, PostgresOptions::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_processes_on_a_server_that_dies() {
    let settings = [("max_connections", "400")];
    let mut server = block_in_place(|| PrivatePostgres::start_with(&settings).unwrap());
    let url = server.url();
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "permits_chaos::one_of_many", "--ignored"]);
        Ok(command)
    };
    let permits = Arc::new(open(&url).await);
    let restart = &mut || block_in_place(|| server.restart_immediate().unwrap());
    let report = ChaosTest::from_env().run(permits, &url, &start, restart).await.unwrap();
    report.check();
    println!("{report:?}");
    assert_eq!(report.restarted, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a process of the storm above, which starts it"]
async fn one_of_many() {
    let orders = ChaosProcessConfig::from_env().unwrap();
    // The server may be restarting.
    let options = || PostgresOptions { connections: 4, ..PostgresOptions::default() };
    let store = loop {
        match PostgresStore::open(&orders.pool_address, options()).await {
            Ok(store) => break store,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    run_process(orders, Arc::new(store)).await;
}
