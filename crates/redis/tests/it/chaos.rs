//! `bounded`, with real processes that are killed and stopped, and a server that is restarted.

use std::process::Command;

use longshore_testkit::chaos::{ChaosProcessConfig, ChaosTest, run_process};
use longshore_testkit::servers::{PrivateRedis, RedisPersistence};
use tokio::task::block_in_place;

use crate::helpers::{open, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_a_redis_that_remembers() {
    run_chaos(RedisPersistence::EverySecond, &mut |server| server.restart_killed().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_a_redis_that_forgets() {
    run_chaos(RedisPersistence::Nothing, &mut |server| server.restart().unwrap()).await;
}

async fn run_chaos(remembers: RedisPersistence, restart: &mut dyn FnMut(&mut PrivateRedis)) {
    let mut server = server(remembers).await;
    let url = server.url();
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "chaos::one_of_many", "--ignored"]);
        Ok(command)
    };
    let restart = &mut || block_in_place(|| restart(&mut server));
    let storm = ChaosTest { loses_data: remembers == RedisPersistence::Nothing, ..ChaosTest::from_env() };
    let report = storm.run(open(&url), &url, &start, restart).await.unwrap();
    report.check();
    assert_eq!(report.restarted, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a process of the storms above, which start it"]
async fn one_of_many() {
    let orders = ChaosProcessConfig::from_env().unwrap();
    let permits = open(&orders.pool_address);
    run_process(orders, permits).await;
}
