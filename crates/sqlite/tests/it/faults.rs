//! A full disk, a lock held by another process, a clock that jumps.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use longshore::outcome::Params;
use longshore::store::{ClaimRequest, FinishRequest, FinishResult, SendResult};
use longshore::unit::ConcurrencyCap;
use longshore::worker_session::NewSession;
use longshore::{
    Effect, Enqueue as _, Error, Kind, NewUnit, Outcome, Policy, Queries as _, Scope, SessionId, UnitId,
    UnitState, WorkerApi as _,
};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};

use crate::helpers::fixture_at;

fn unit(bytes: usize) -> NewUnit {
    NewUnit::new(Kind::new("k").unwrap(), vec![b'x'; bytes])
}

/// A file system of a few megabytes, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(folder.path())
            .status()
            .expect("`mount` is missing");
        assert!(mount.success(), "this test must be allowed to mount a tmpfs: run it as root");
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_loses_nothing_that_was_confirmed() {
    let disk = SmallDisk::mount();
    let store = SqliteStore::open(&disk.path().join("longshore.db"), SqliteOptions::default()).unwrap();
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 400 << 10]).unwrap();
    let mut confirmed: Vec<UnitId> = Vec::new();
    let error = loop {
        match store.send(&Scope::All, vec![unit(10_000)]).await {
            Ok(sent) => match sent[0] {
                SendResult::Created(id) => confirmed.push(id),
                _ => panic!("{sent:?}"),
            },
            Err(error) => break error,
        }
    };
    assert!(error.is_retryable(), "{error:?}");
    assert!(matches!(error, Error::DiskFull { .. } | Error::Unavailable { .. }), "{error:?}");
    for id in &confirmed {
        assert_eq!(store.unit(&Scope::All, *id).await.unwrap().payload.len(), 10_000);
    }
    // With space again the same store continues.
    std::fs::remove_file(&ballast).unwrap();
    store.send(&Scope::All, vec![unit(10)]).await.unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_store_that_filled_its_disk_continues_on_a_larger_one() {
    let (disk, larger) = (SmallDisk::mount(), tempfile::tempdir().unwrap());
    let name = "longshore.db";
    let store = SqliteStore::open(&disk.path().join(name), SqliteOptions::default()).unwrap();
    let mut confirmed = 0;
    let error = loop {
        match store.send(&Scope::All, vec![unit(10_000)]).await {
            Ok(_) => confirmed += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DiskFull { .. } | Error::Unavailable { .. }), "{error:?}");
    drop(store);
    // The log has what the database file had no space for, and must go with it.
    for file in std::fs::read_dir(disk.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), larger.path().join(file.file_name())).unwrap();
    }
    let store = SqliteStore::open(&larger.path().join(name), SqliteOptions::default()).unwrap();
    store.send(&Scope::All, vec![unit(10)]).await.unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    drop(store);
    let db = Connection::open(larger.path().join(name)).unwrap();
    let units: u64 = db.query_row("SELECT count(*) FROM longshore_unit", [], |row| row.get(0)).unwrap();
    assert_eq!(units, confirmed + 1);
}

#[tokio::test]
async fn a_full_disk_during_an_effect_fails_no_unit() {
    let disk = SmallDisk::mount();
    let path = disk.path().join("longshore.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE notes (text BLOB)").unwrap();
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let (session, kind) = (SessionId::new(), Kind::new("k").unwrap());
    let kinds = BTreeMap::from([(kind.clone(), Policy::default())]);
    store.open_session(NewSession { kinds, slots: 1, ..NewSession::new(session, "") }).await.unwrap();
    store.send(&Scope::All, vec![unit(10)]).await.unwrap();
    let claim = ClaimRequest { free_slots: 1, ..ClaimRequest::new(session, vec![kind], 1) };
    let lease = store.claim(claim).await.unwrap().units[0].lease;
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
        INSERT INTO notes SELECT zeroblob(10000) FROM n";
    for sql in ["INSERT INTO notes VALUES (zeroblob(40000000))", rows] {
        let effect = Effect { sql: sql.to_owned(), params: Params::Ordered(vec![]), expected_rows: None };
        let end = FinishRequest { effects: vec![effect], ..FinishRequest::new(lease, Outcome::Done(None)) };
        let error = store.finish(session, vec![end]).await.unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. } | Error::Unavailable { .. }), "{error:?}");
    }
    // The unit still runs, and its finish is recorded when it fits.
    let end = FinishRequest::new(lease, Outcome::Done(None));
    let ended = store.finish(session, vec![end]).await.unwrap();
    assert_eq!(ended, [FinishResult::Recorded(UnitState::Done)]);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_database_behind_a_link_is_the_database_itself() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (file, link) = (home.path().join("real.db"), elsewhere.path().join("link.db"));
    drop(SqliteStore::open(&file, SqliteOptions::default()).unwrap());
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let (direct, linked) = (
        SqliteStore::open(&file, SqliteOptions::default()).unwrap(),
        SqliteStore::open(&link, SqliteOptions::default()).unwrap(),
    );
    let sent = linked.send(&Scope::All, vec![unit(1)]).await.unwrap();
    let SendResult::Created(id) = sent[0] else { panic!("{sent:?}") };
    assert!(direct.unit(&Scope::All, id).await.is_ok());
}

#[tokio::test]
async fn a_lock_held_by_another_writer_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (scope, waiting) = (Scope::All, Arc::clone(&store));
    let mut send = std::pin::pin!(waiting.send(&scope, vec![unit(1)]));
    let early = tokio::time::timeout(Duration::from_secs(2), &mut send).await;
    assert!(early.is_err(), "the lock is held");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(send.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_lock_held_too_long_is_a_retryable_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(50), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.send(&Scope::All, vec![unit(1)]).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("write lock"), "{error}");
    other.execute_batch("COMMIT").unwrap();
    store.send(&Scope::All, vec![unit(1)]).await.unwrap();
}

#[tokio::test]
async fn one_bad_verb_does_not_harm_the_group_it_is_committed_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    // Hold the lock so that all operations queue behind one commit.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut sends = tokio::task::JoinSet::new();
    for i in 0..20 {
        let store = Arc::clone(&store);
        sends.spawn(async move {
            let mut bad = unit(1);
            bad.weight.slots = u32::from(i % 5 != 0);
            // The valid half of a bad send must not be stored either.
            store.send(&Scope::All, vec![unit(1), bad]).await.is_ok()
        });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    other.execute_batch("COMMIT").unwrap();
    let good = sends.join_all().await.into_iter().filter(|good| *good).count();
    assert_eq!(good, 16);
    let totals = store.totals(&Scope::All, &longshore::store::Queues::All).await.unwrap();
    assert_eq!(totals.counts.ready, 32);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// A promotion checks a thousand cap keys. The next one checks those after them.
#[tokio::test]
async fn a_parked_unit_is_found_behind_a_thousand_other_cap_keys() {
    let (fixture, path) = fixture_at().await;
    let capped = |key: String| NewUnit { cap: Some(ConcurrencyCap { key, limit: 1 }), ..unit(2) };
    let held = (0..1_001).map(|nth| capped(format!("a-{nth}"))).collect();
    fixture.store.send(&Scope::All, held).await.unwrap();
    let session = SessionId::new();
    fixture.store.open_session(NewSession::new(session, "test")).await.unwrap();
    let claim = || ClaimRequest::new(session, vec![Kind::new("k").unwrap()], 2_000);
    assert_eq!(fixture.store.claim(claim()).await.unwrap().units.len(), 1_001);
    fixture.store.send(&Scope::All, vec![capped("z".to_owned())]).await.unwrap();
    let db = Connection::open(path).unwrap();
    assert_eq!(db.execute("UPDATE longshore_unit SET state = 7 WHERE state = 2", []).unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(fixture.store.claim(claim()).await.unwrap().units.len(), 0);
        fixture.store.promote(100).await.unwrap();
    }
    assert_eq!(fixture.store.claim(claim()).await.unwrap().units.len(), 1);
}
