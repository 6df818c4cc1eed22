//! Several stores on one file: like several processes, each with its own connections and threads.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::ClaimRequest;
use longshore::worker_session::NewSession;
use longshore::{
    Enqueue as _, Kind, NewUnit, Policy, Queries as _, Scope, SessionId, UnitId, WorkerApi as _,
};
use longshore_sqlite::{SqliteOptions, SqliteStore};

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

fn units(count: usize) -> Vec<NewUnit> {
    let kind = Kind::new("k").unwrap();
    (0..count).map(|i| NewUnit::new(kind.clone(), serde_json::json!(i))).collect()
}

async fn session(store: &SqliteStore) -> SessionId {
    let id = SessionId::new();
    let kinds = BTreeMap::from([(Kind::new("k").unwrap(), Policy::default())]);
    let new = NewSession { kinds, slots: 100, ..NewSession::new(id, "") };
    store.open_session(new).await.unwrap();
    id
}

async fn claim(store: &SqliteStore, session: SessionId, free: u32) -> Vec<UnitId> {
    let claim =
        ClaimRequest { free_slots: free, ..ClaimRequest::new(session, vec![Kind::new("k").unwrap()], 100) };
    let claimed = store.claim(claim).await.unwrap();
    claimed.units.into_iter().map(|held| held.lease.unit).collect()
}

#[tokio::test]
async fn a_new_file_and_its_log_are_for_their_owner_only_and_an_existing_one_keeps_its_mode() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let mode = |end: &str| {
        let path = folder.path().join(format!("store.db{end}"));
        path.metadata().unwrap().permissions().mode() & 0o777
    };
    // SQLite would create the target of a link with the umask's mode.
    symlink("store.db", folder.path().join("link.db")).unwrap();
    let store = open(&folder.path().join("link.db"));
    store.send(&Scope::All, units(1)).await.unwrap();
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o600; 3]);
    drop(store);
    // The operator shares the file with a group.
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o660)).unwrap();
    let store = open(&file);
    store.send(&Scope::All, units(1)).await.unwrap();
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o660; 3]);
}

#[tokio::test]
async fn a_send_in_one_store_wakes_a_worker_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let (sender, worker) = (open(&path), open(&path));
    let mut seen = worker.wait_for_ready(0, Duration::ZERO).await;
    for _ in 0..3 {
        sender.send(&Scope::All, units(1)).await.unwrap();
        let woken = worker.wait_for_ready(seen, Duration::from_secs(20)).await;
        assert_ne!(woken, seen, "woken by the send, not by the limit");
        seen = woken;
    }
}

#[tokio::test]
async fn a_change_in_one_store_is_heard_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let (sender, listener) = (open(&path), open(&path));
    let heard = listener.changes(&Scope::All, u64::MAX, Duration::from_secs(20));
    let send = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        sender.send(&Scope::All, units(1)).await.unwrap();
    };
    let (heard, ()) = tokio::join!(heard, send);
    assert_eq!(heard.unwrap().changes.len(), 1);
}

#[test]
fn a_fresh_file_may_be_opened_by_many_at_once() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("longshore.db");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| drop(open(&path)));
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_holder_across_stores_that_claim_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    open(&path).send(&Scope::All, units(1000)).await.unwrap();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = open(&path);
        workers.spawn(async move {
            let session = session(&store).await;
            let mut mine = Vec::new();
            loop {
                let more = claim(&store, session, 7).await;
                if more.is_empty() {
                    return mine;
                }
                mine.extend(more);
            }
        });
    }
    let all: Vec<UnitId> = workers.join_all().await.into_iter().flatten().collect();
    let distinct: HashSet<UnitId> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (1000, 1000));
    assert_eq!(open(&path).verify().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_reads_at_once_opens_sixteen_connections_for_reads_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("s.db");
    let store = open(&path);
    store.send(&Scope::All, units(3_000)).await.unwrap();
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let store = Arc::clone(&store);
        reads.spawn(async move { store.verify().await.unwrap() });
    }
    assert!(reads.join_all().await.iter().all(Vec::is_empty));
    // Readers stay open, and the writer has files of its own. This process runs no other test.
    let open_files = std::fs::read_dir("/proc/self/fd").unwrap();
    let open_files = open_files.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let connections = open_files.filter(|file| *file == path).count();
    assert!((2..=20).contains(&connections), "{connections} connections");
}
