//! Every case of the suite, the cases for SQL effects, and random histories against the oracle.
//!
//! A server per case would take an hour. Cases run in groups: each group on one server, each case
//! in its own database. A group reports all its failed cases. To run fewer, set `LONGSHORE_CASE` to
//! a part of their names.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore::MemoryStore;
use longshore_testkit::conformance::{self, CASES, SQL_CASES};
use longshore_testkit::{ManualClock, SqlStoreFixture, StoreFixture};
use tokio::task::{JoinError, JoinSet};

use crate::test_server::{Database, Server};

/// How long a case may take before it counts as hanging.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Cases that run concurrently.
const MAX_CONCURRENT: usize = 4;

macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident [$($topic:ident)*])*) => {
        $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            run(&[$(stringify!($topic)),*]).await;
        })*

        const TOPICS: &[&str] = &[$($(stringify!($topic)),*),*];
    };
}

groups! {
    units_come_in_as_in_every_store [sending dedup dependencies capacity listing schedules]
    batches_move_as_in_every_store [batches batch_limits generations batch_sums scopes admin]
    leases_hold_as_in_every_store [leases outcomes sessions maintenance]
    claims_choose_as_in_every_store [claim_order weights caps lanes shares tenants changes]
    effects_commit_as_in_every_store [effects]
    the_ledger_is_kept_as_in_every_store [
        ledger_profiles ledger_keys ledger_calls ledger_session_end ledger_budgets
        ledger_token_buckets ledger_provider_batches ledger_replies ledger_usage ledger_tokens
    ]
}

#[test]
fn every_topic_is_in_a_group() {
    let topics = CASES.iter().chain(SQL_CASES).map(|case| topic(case));
    let listed: BTreeSet<&str> = TOPICS.iter().copied().collect();
    assert_eq!(topics.collect::<BTreeSet<_>>(), listed);
}

fn topic(case: &str) -> &str {
    case.split_once("::").unwrap().0
}

/// Runs all cases of some topics, and reports the failed ones.
async fn run(topics: &[&str]) {
    let wanted = std::env::var("LONGSHORE_CASE").unwrap_or_default();
    let mut cases = CASES
        .iter()
        .chain(SQL_CASES)
        .copied()
        .filter(|case| topics.contains(&topic(case)) && case.contains(&wanted));
    let server = Server::start().await;
    let (mut failed, mut running) = (Vec::new(), JoinSet::new());
    loop {
        while running.len() < MAX_CONCURRENT
            && let Some(case) = cases.next()
        {
            let server = server.clone();
            running.spawn(async move { (case, run_case(&server, case).await) });
        }
        let Some(ended) = running.join_next().await else { break };
        let (case, words) = ended.unwrap();
        failed.extend(words.map(|words| format!("{case}: {words}")));
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n\n"));
}

/// Runs one case, and returns why it failed.
async fn run_case(server: &Server, case: &'static str) -> Option<String> {
    let database = server.database().await;
    let mut alone = JoinSet::new();
    let own = Arc::clone(&database);
    alone.spawn(async move {
        let fixture = own.fixture().await;
        if SQL_CASES.contains(&case) {
            // The cases use this name for a column of bytes.
            own.run("CREATE DOMAIN blob AS bytea");
            conformance::run_sql(case, &SqlFixture { fixture, database: own }).await;
        } else {
            conformance::run(case, &fixture).await;
        }
    });
    match tokio::time::timeout(CASE_TIMEOUT, alone.join_next()).await {
        Err(_) => Some("timed out".to_owned()),
        Ok(ended) => ended.unwrap().err().map(panic_message),
    }
}

pub(crate) fn panic_message(error: JoinError) -> String {
    let payload: Box<dyn Any + Send> = error.into_panic();
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

struct SqlFixture {
    fixture: StoreFixture,
    database: Arc<Database>,
}

impl SqlStoreFixture for SqlFixture {
    fn fixture(&self) -> &StoreFixture {
        &self.fixture
    }

    fn execute(&self, sql: &str) {
        self.database.run(sql);
    }

    fn query_i64(&self, sql: &str) -> i64 {
        self.database.run(sql).trim().parse().unwrap()
    }
}

/// `LONGSHORE_SOAK` runs more histories.
#[test]
fn random_histories_end_as_in_the_oracle() {
    let cases = if std::env::var_os("LONGSHORE_SOAK").is_some() { 500 } else { 12 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    longshore_testkit::model::compare_stores(cases, || async {
        let clock = Arc::new(ManualClock::default());
        let oracle = StoreFixture::new(Arc::new(MemoryStore::new(clock.clone())), clock);
        (oracle, server.fixture().await)
    });
}
