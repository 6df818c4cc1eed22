//! The reply to a commit is lost: this process cannot know the result, and repeats the operation. The unit's id and the
//! lease's fence tell the store what it has done already.

use std::time::Duration;

use longshore::outcome::Params;
use longshore::store::{ClaimRequest, FinishRequest, FinishResult, Queues, SendResult};
use longshore::unit::{Dedup, DedupWindow, OnDuplicate};
use longshore::{
    Effect, Enqueue as _, NewUnit, Outcome, Queries as _, Result, Scope, SessionId, UnitState, WorkerApi as _,
};
use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use longshore_testkit::fault_proxy::{Direction, FaultProxy, LinkFault};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::outages::{new_session, retry_until_ok, unit};

const ALL: Scope = Scope::All;
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server on which COMMITs wait for a standby that does not exist, if their session says so; and a store that reaches it
/// through a proxy.
struct SlowCommits {
    server: PrivatePostgres,
    proxy: FaultProxy,
    store: PostgresStore,
}

/// Sends and finishes, of which each is one transaction or one statement.
#[derive(Clone)]
struct Operations {
    plain: NewUnit,
    with_key: NewUnit,
    /// The sessions that finish, each with one unit.
    finishes: Vec<(SessionId, FinishRequest)>,
}

impl SlowCommits {
    async fn start() -> Self {
        let server = block_in_place(|| {
            let mut server = PrivatePostgres::start_with(&[("synchronous_commit", "local")]).unwrap();
            server.run("ALTER SYSTEM SET synchronous_standby_names = 'missing'").unwrap();
            server.restart().unwrap();
            server
        });
        let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
        // Creates the schema; its commits wait for nothing.
        PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap();
        block_in_place(|| server.run("CREATE TABLE note (text text)").unwrap());
        let url = server.url_at_port(proxy.address().port()) + "?options=-c%20synchronous_commit%3Don";
        let (timeout, effect_timeout) = (Duration::from_secs(1), Duration::from_millis(500));
        let options =
            PostgresOptions { timeout, effect_timeout, listen: Listen::Off, ..PostgresOptions::default() };
        let store = PostgresStore::open(&url, options).await.unwrap();
        Self { server, proxy, store }
    }

    fn ask(&self, sql: &str) -> String {
        block_in_place(|| self.server.run(sql).unwrap()).trim().to_owned()
    }

    async fn wait_until(&self, sql: &str, answer: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while self.ask(sql) != answer {
            assert!(
                Instant::now() < deadline,
                "{sql} is not {answer}: {}",
                self.ask("TABLE pg_stat_activity")
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Leases two units, through connections without a proxy. The effect of the second one is `insert`.
    async fn operations(&self, insert: &str) -> Operations {
        let direct = PostgresStore::open(&self.server.url(), PostgresOptions::default()).await.unwrap();
        let mut finishes = Vec::new();
        for _ in 0..2 {
            direct.send(&ALL, vec![unit()]).await.unwrap();
            let session = SessionId::new();
            direct.open_session(new_session(session)).await.unwrap();
            let claimed = direct.claim(ClaimRequest::new(session, vec![unit().kind], 1)).await.unwrap();
            finishes.push((session, FinishRequest::new(claimed.units[0].lease, Outcome::Done(None))));
        }
        let params = Params::Ordered(vec![]);
        finishes[1].1.effects.push(Effect { sql: insert.to_owned(), params, expected_rows: Some(1) });
        let dedup =
            Dedup { key: "k".into(), window: DedupWindow::WhileLive, on_duplicate: OnDuplicate::Rejected };
        Operations { plain: unit(), with_key: NewUnit { dedup: Some(dedup), ..unit() }, finishes }
    }

    async fn send(&self, unit: &NewUnit) -> Result<Vec<SendResult>> {
        self.store.send(&ALL, vec![unit.clone()]).await
    }

    async fn finish(&self, (session, end): &(SessionId, FinishRequest)) -> Result<Vec<FinishResult>> {
        self.store.finish(*session, vec![end.clone()]).await
    }

    /// Runs all operations at once. Each fails, and may be repeated.
    async fn fail_all(&self, operations: &Operations) {
        let Operations { plain, with_key, finishes } = operations;
        let (first, second, third, fourth) = tokio::join!(
            self.send(plain),
            self.send(with_key),
            self.finish(&finishes[0]),
            self.finish(&finishes[1]),
        );
        for error in [first.unwrap_err(), second.unwrap_err(), third.unwrap_err(), fourth.unwrap_err()] {
            assert!(error.is_retryable(), "{error}");
        }
    }

    /// Repeats all operations until each has an answer. Each is done once.
    async fn repeat_all(&self, operations: &Operations) {
        for unit in [&operations.plain, &operations.with_key] {
            let sent = retry_until_ok(|| self.send(unit)).await;
            assert_eq!(sent, [SendResult::Created(unit.id)]);
        }
        for end in &operations.finishes {
            let finished = retry_until_ok(|| self.finish(end)).await;
            assert_eq!(finished, [FinishResult::Recorded(UnitState::Done)]);
        }
        assert_eq!(self.ask("SELECT count(*) FROM note"), "1");
        let counts = self.store.totals(&ALL, &Queues::All).await.unwrap().counts;
        assert_eq!((counts.ready, counts.done, counts.total()), (2, 2, 4));
        assert_eq!(self.store.verify().await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_comes_too_late_is_found_by_the_repeated_operation() {
    let slow = SlowCommits::start().await;
    let operations = slow.operations("INSERT INTO note VALUES ('once')").await;
    let cut = async {
        slow.wait_until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "4").await;
        slow.proxy.set(LinkFault::HalfOpen);
        slow.proxy.heal();
    };
    tokio::join!(slow.fail_all(&operations), cut);
    assert_eq!(slow.ask("SELECT count(*) FROM note"), "0", "not visible before the standby has it");
    // No commit waits for the standby any more.
    slow.ask("ALTER SYSTEM SET synchronous_standby_names = ''");
    slow.ask("SELECT pg_reload_conf()");
    slow.wait_until("SELECT count(*) FROM note", "1").await;
    slow.wait_until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "0").await;
    slow.repeat_all(&operations).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_reaches_the_server_too_late_or_never_is_done_once_by_the_repeated_operation() {
    let slow = SlowCommits::start().await;
    slow.ask("ALTER SYSTEM SET synchronous_standby_names = ''");
    slow.ask("SELECT pg_reload_conf()");
    let operations = slow.operations("INSERT INTO note SELECT 'once' FROM pg_sleep(0.3)").await;
    let effect = operations.finishes[1].clone();
    let stall = async {
        slow.wait_until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1").await;
        slow.proxy.set(LinkFault::Stall(Direction::ToServer));
        let others = Operations { finishes: vec![operations.finishes[0].clone(); 2], ..operations.clone() };
        slow.fail_all(&others).await;
    };
    let (finished, ()) = tokio::join!(slow.finish(&effect), stall);
    assert!(finished.unwrap_err().is_retryable());
    // What the proxy has kept reaches the server now, beside the repeated operations.
    slow.proxy.heal();
    slow.repeat_all(&operations).await;
}
