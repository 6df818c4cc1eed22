//! `bounded`, with real processes that are killed and stopped, and a server that is restarted.

use std::process::Command;

use longshore_testkit::servers::{PrivateRedis, Remembers};
use longshore_testkit::storm::{Orders, Storm, member};
use tokio::task::block_in_place;

use crate::helpers::{open, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_a_redis_that_remembers() {
    run_chaos(Remembers::EverySecond, &mut |server| server.restart_killed().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_a_redis_that_forgets() {
    run_chaos(Remembers::Nothing, &mut |server| server.restart().unwrap()).await;
}

async fn run_chaos(remembers: Remembers, restart: &mut dyn FnMut(&mut PrivateRedis)) {
    let mut server = server(remembers).await;
    let url = server.url();
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "chaos::one_of_many", "--ignored"]);
        Ok(command)
    };
    let restart = &mut || block_in_place(|| restart(&mut server));
    let storm = Storm { forgets: remembers == Remembers::Nothing, ..Storm::sized() };
    let report = storm.rage(open(&url), &url, &start, restart).await.unwrap();
    report.check();
    assert_eq!(report.restarted, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a process of the storms above, which start it"]
async fn one_of_many() {
    let orders = Orders::ours().unwrap();
    let permits = open(&orders.place_of_pool);
    member(orders, permits).await;
}
