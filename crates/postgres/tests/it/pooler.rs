//! Behind PgBouncer in transaction mode: every transaction may run on another server connection.

use std::sync::Arc;

use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use longshore_testkit::conformance::{self, CASES};
use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};
use tokio::task::{JoinSet, block_in_place};

use crate::outages::{is_woken, wait_until_notified};
use crate::test_server::Server;

fn servers() -> (PrivatePostgres, PrivatePgbouncer) {
    block_in_place(|| {
        let server = PrivatePostgres::start().unwrap();
        let bouncer = PrivatePgbouncer::start(&server).unwrap();
        (server, bouncer)
    })
}

async fn open(url: &str, listen: Listen) -> PostgresStore {
    let options = PostgresOptions { listen, ..PostgresOptions::default() };
    PostgresStore::open(url, options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_listens_at_the_server_itself_hears_of_what_comes_through_a_pooler() {
    let (server, bouncer) = servers();
    let listener = open(&bouncer.url(), Listen::Url(server.url())).await;
    let sender = open(&bouncer.url(), Listen::Off).await;
    wait_until_notified(&listener, &sender).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_can_only_listen_through_a_pooler_polls() {
    let (_server, bouncer) = servers();
    for listen in [Listen::Auto, Listen::Off] {
        let polling = open(&bouncer.url(), listen).await;
        let sender = open(&bouncer.url(), Listen::Off).await;
        assert!(is_woken(&polling, &sender).await);
        assert!(!polling.is_listening());
    }
}

/// Topics that would fail if an operation relied on keeping its server connection.
const TOPICS: [&str; 10] = [
    "sending",
    "dedup",
    "leases",
    "caps",
    "capacity",
    "changes",
    "generations",
    "ledger_calls",
    "ledger_budgets",
    "ledger_token_buckets",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_holds_through_a_pooler() {
    let server = Server::start().await;
    let bouncer = Arc::new(server.bouncer().await);
    let mut cases = CASES.iter().filter(|case| TOPICS.iter().any(|topic| case.starts_with(topic)));
    let (mut failed, mut running) = (Vec::new(), JoinSet::new());
    loop {
        while running.len() < 4
            && let Some(case) = cases.next()
        {
            running.spawn(run_case(server.clone(), Arc::clone(&bouncer), case));
        }
        let Some(ended) = running.join_next().await else { break };
        failed.extend(ended.unwrap());
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Runs one case through the pooler, and returns its name if it fails.
async fn run_case(
    server: Server,
    bouncer: Arc<PrivatePgbouncer>,
    case: &'static str,
) -> Option<&'static str> {
    let database = server.database().await;
    let mut alone = JoinSet::new();
    alone.spawn(async move {
        let fixture = database.fixture_at(&bouncer.pooled_url(&database.url)).await;
        conformance::run(case, &fixture).await;
    });
    alone.join_next().await.unwrap().is_err().then_some(case)
}
