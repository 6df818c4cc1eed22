//! Runs every case of the conformance suite, the cases for SQL effects, and random histories
//! against the oracle.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore::MemoryStore;
use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::{ManualClock, SqlStoreFixture, StoreFixture};

use crate::helpers::{fixture, fixture_at};

longshore_testkit::conformance_suite!(fixture);

struct Bank {
    fixture: StoreFixture,
    path: PathBuf,
}

impl SqlStoreFixture for Bank {
    fn fixture(&self) -> &StoreFixture {
        &self.fixture
    }

    fn execute(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap();
    }

    fn query_i64(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

impl Bank {
    fn connect(&self) -> Connection {
        let db = Connection::open(&self.path).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db
    }
}

async fn bank() -> Bank {
    let (fixture, path) = fixture_at().await;
    Bank { fixture, path }
}

longshore_testkit::effects_suite!(bank);

/// `LONGSHORE_SOAK` runs many more cases.
#[test]
fn a_storm_of_random_histories_ends_as_in_the_oracle() {
    let cases = if std::env::var_os("LONGSHORE_SOAK").is_some() { 2_000 } else { 40 };
    longshore_testkit::model::compare_stores(cases, || async {
        let clock = Arc::new(ManualClock::default());
        let oracle = StoreFixture::new(Arc::new(MemoryStore::new(clock.clone())), clock);
        (oracle, fixture().await)
    });
}

#[test]
fn a_storm_of_random_ledgers_ends_as_in_the_oracle() {
    let cases = if std::env::var_os("LONGSHORE_SOAK").is_some() { 2_000 } else { 40 };
    longshore_testkit::model::compare_ledgers(cases, || async {
        let clock = Arc::new(ManualClock::default());
        let oracle = StoreFixture::new(Arc::new(MemoryStore::new(clock.clone())), clock);
        (oracle, fixture().await)
    });
}
