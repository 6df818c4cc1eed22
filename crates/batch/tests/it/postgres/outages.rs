//! Servers that stop, crash, reject connections or do not answer.

use longshore_batch::rows::{DatabaseRows, RowSource, SourceError, open};
use longshore_databases::DatabaseTarget;
use longshore_testkit::servers::PrivatePostgres;

use super::{PostgresAccess, directly, through_a_pooler};
use crate::remote::{self, TestDatabase, effect, int};

#[tokio::test]
async fn a_server_that_stops_is_away_until_it_is_back() {
    let mut database = directly();
    database.lines(5);
    let rows = database.rows();
    several_connections(&*rows).await;
    database.server.stop();
    remote::assert_unavailable(&*rows).await;
    database.server.restart().unwrap();
    works_again(&database, &*rows).await;
    database.server.restart_immediate().unwrap();
    works_again(&database, &*rows).await;
    let nowhere = database.url.replace(&database.server.port().to_string(), "1");
    let error = open(&nowhere).unwrap().describe("SELECT 1").await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1: ") && error.contains("refused"), "{error}");
    a_wrong_password_is_not_repeated(&database.server).await;
}

#[tokio::test]
async fn a_standby_takes_no_rows_until_it_is_promoted() {
    let database = directly();
    database.lines(5);
    let standby = database.server.start_standby().unwrap();
    let rows = open(&standby.url()).unwrap();
    let change = [effect("UPDATE line SET note = 'x' WHERE id = 1", &[], Some(1))];
    let error = rows.apply(&change).await.unwrap_err();
    assert!(matches!(error, SourceError::Unavailable(_)), "{error:?}");
    standby.promote().unwrap();
    rows.apply(&change).await.unwrap();
}

#[tokio::test]
async fn a_crash_behind_the_pooler_is_survived() {
    let mut database = through_a_pooler();
    database.lines(5);
    let rows = database.rows();
    several_connections(&*rows).await;
    database.server.restart_immediate().unwrap();
    // The pooler may have reached the server during its recovery, and reports that for a second.
    let change = [effect("UPDATE line SET note = 'again' WHERE id = 1", &[], Some(1))];
    while let Err(error) = rows.apply(&change).await {
        assert!(matches!(error, SourceError::Unavailable(_)), "{error:?}");
    }
    works_again(&database, &*rows).await;
}

/// Opens several connections at once, so that several go stale.
async fn several_connections(rows: &dyn RowSource) {
    let read = || rows.fetch("SELECT * FROM line", &[]);
    let (a, b, c) = tokio::join!(read(), read(), read());
    assert_eq!([a, b, c].map(|rows| rows.unwrap().len()), [5; 3]);
}

/// Reads and writes succeed at the first try, also on connections that were open before.
async fn works_again(database: &PostgresAccess, rows: &dyn RowSource) {
    let change = "UPDATE line SET note = 'back' WHERE id = 1";
    rows.apply(&[effect(change, &[], Some(1))]).await.unwrap();
    several_connections(rows).await;
    assert_eq!(database.run("SELECT note FROM line WHERE id = 1"), "back\n");
}

async fn a_wrong_password_is_not_repeated(server: &PrivatePostgres) {
    let url = server.url().replace("quay-side-9%25", "wrong-one");
    let rows = DatabaseRows::server(DatabaseTarget::Postgres(url)).unwrap();
    let error = rows.describe("SELECT 1").await.unwrap_err();
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(matches!(error, SourceError::Unavailable(_)));
    let shown = format!("{error:?} {rows:?}");
    assert!(!shown.contains("wrong-one") && !shown.contains(server.password()), "{shown}");
}

#[tokio::test]
async fn a_lock_that_is_held_too_long_is_away() {
    let database = through_a_pooler();
    database.lines(5);
    database.run("ALTER ROLE longshore SET lock_timeout = '100ms'");
    let url = database.server.url();
    let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    other.batch_execute("BEGIN; UPDATE line SET note = 'mine' WHERE id = 2").await.unwrap();
    let change = |id| effect("UPDATE line SET note = 'x' WHERE id = :id", &[("id", int(id))], None);
    let rows = database.rows();
    let error = rows.apply(&[change(1), change(2)]).await.unwrap_err();
    assert!(matches!(&error, SourceError::Busy(words) if words.contains("lock timeout")), "{error:?}");
    assert_eq!(database.run("SELECT count(*) FROM line WHERE note = 'x'").trim(), "0", "all or none");
    other.batch_execute("COMMIT").await.unwrap();
    rows.apply(&[change(1), change(2)]).await.unwrap();
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_nothing_behind() {
    let database = directly();
    database.lines(5);
    let rows = database.rows();
    let change = effect("UPDATE line SET note = 'x' WHERE id = 1", &[], None);
    let slow = effect("UPDATE line SET note = pg_sleep(3600)::text WHERE id = 2", &[], None);
    let effects = [change, slow];
    let begun =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'";
    {
        let mut applying = std::pin::pin!(rows.apply(&effects));
        while database.run(begun).trim() == "0" {
            let turn = std::time::Duration::from_millis(10);
            assert!(tokio::time::timeout(turn, applying.as_mut()).await.is_err(), "it ended");
        }
    }
    let is_stopped = async {
        while database.run(begun).trim() != "0" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), is_stopped)
        .await
        .expect("it is stopped at the server");
    several_connections(&*rows).await;
    let write = effect("UPDATE line SET note = 'mine' WHERE id = 1", &[], Some(1));
    rows.apply(&[write]).await.unwrap();
    assert_eq!(database.run("SELECT count(*) FROM line WHERE note = 'mine'").trim(), "1");
}

#[tokio::test]
async fn a_statement_that_reaches_its_time_limit_says_so() {
    let database = directly();
    let url = database.server.url() + "?options=-cstatement_timeout%3D100ms";
    let error = open(&url).unwrap().fetch("SELECT pg_sleep(60)", &[]).await.unwrap_err();
    assert!(
        matches!(&error, SourceError::TimedOut(words) if words.contains("statement timeout")),
        "{error:?}"
    );
}
