//! A store that is used while every thread of the runtime that opened it is blocked.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic")]

use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull};
use longshore_core::store::Heartbeat;
use longshore_core::worker_session::NewSession;
use longshore_core::{PermitId, Permits, PoolName, Priority, SessionId, Store};
use tokio::runtime::Builder;
use tokio::time::timeout;

const THREADS: usize = 2;
const TTL: Duration = Duration::from_secs(60);
/// The most that an answer takes on a slow machine. The block lasts longer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Opens a store, or permits alone, on a runtime of two threads. Both are then blocked, as by handlers. Heartbeats and
/// renewals from another thread must be answered meanwhile: else a worker that is only busy is declared dead, or loses
/// its permits.
pub fn heartbeats_and_renewals_are_answered(
    open: impl Future<Output = (Option<Arc<dyn Store>>, Arc<dyn Permits>)>,
) {
    let blocked = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
    let (session, permit) = (SessionId::new(), PermitId::new());
    let pool = PoolName::new("licence").unwrap();
    let (store, permits) = blocked.block_on(async {
        let (store, permits) = open.await;
        if let Some(store) = &store {
            store.open_session(NewSession { ttl: TTL, ..NewSession::new(session, "") }).await.unwrap();
        }
        let ask = AcquireRequest {
            id: permit,
            max: 1,
            weight: 1,
            priority: Priority::NORMAL,
            ttl: TTL,
            if_full: IfFull::Fail,
            owner: "".into(),
        };
        let answer = permits.acquire(&pool, &ask).await.unwrap();
        assert!(matches!(answer, AcquireResult::Granted(_)), "{answer:?}");
        (store, permits)
    });
    let (entered, (release, wait)) = (Arc::new(Barrier::new(THREADS + 1)), mpsc::channel::<()>());
    let wait = Arc::new(std::sync::Mutex::new(wait));
    for _ in 0..THREADS {
        let (entered, wait) = (Arc::clone(&entered), Arc::clone(&wait));
        blocked.spawn(async move {
            entered.wait();
            // Ends when the sender is dropped.
            let _ = wait.lock().map(|wait| wait.recv());
        });
    }
    entered.wait();
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        if let Some(store) = &store {
            let beat = timeout(ANSWER_LIMIT, store.heartbeat(session, Heartbeat::default())).await;
            beat.expect("an answer to a heartbeat").unwrap();
        }
        let renewed = timeout(ANSWER_LIMIT, permits.renew(&pool, &[permit], TTL)).await;
        assert_eq!(renewed.expect("an answer to a renewal").unwrap(), [], "the permit is lost");
    });
    drop(release);
}
