//! Helpers of the permit cases.
//!
//! Some back ends have a clock that cases cannot move. So a lease that must stay has [`LONG_TTL`], a lease that
//! must expire has [`SHORT_TTL`], and no case asserts that the latter is still held.

use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull, PermitGrant, PoolStats};
use longshore_core::{PermitId, PoolName, Priority};

use crate::PermitsFixture;

/// Longer than any case takes.
pub(super) const LONG_TTL: Duration = Duration::from_secs(600);
/// Expires during a case.
pub(super) const SHORT_TTL: Duration = Duration::from_millis(100);
/// Long enough for a few calls before it expires, even on a busy machine.
pub(super) const MEDIUM_TTL: Duration = Duration::from_secs(2);
/// The limit for a wake-up.
const WAKEUP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn pool() -> PoolName {
    pool_named("mjml")
}

pub(super) fn pool_named(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

/// A request for one permit of a pool of `max`, with a long lease; waits if the pool is full.
pub(super) fn permit_request(max: u32) -> AcquireRequest {
    AcquireRequest {
        id: PermitId::new(),
        max,
        weight: 1,
        priority: Priority::NORMAL,
        owner: "case".into(),
        ttl: LONG_TTL,
        if_full: IfFull::Wait(LONG_TTL),
    }
}

/// A request for `weight` of a pool of `max`.
pub(super) fn weighted_request(weight: u32, max: u32) -> AcquireRequest {
    AcquireRequest { weight, ..permit_request(max) }
}

/// The same request, which fails if the pool is full.
pub(super) fn without_waiting(ask: &AcquireRequest) -> AcquireRequest {
    AcquireRequest { if_full: IfFull::Fail, ..ask.clone() }
}

/// A request for one permit with a short lease.
pub(super) fn short_request(max: u32) -> AcquireRequest {
    AcquireRequest { ttl: SHORT_TTL, ..permit_request(max) }
}

impl PermitsFixture {
    pub(super) async fn request(&self, ask: &AcquireRequest) -> AcquireResult {
        self.permits.acquire(&pool(), ask).await.unwrap()
    }

    /// Sends a request that must be granted.
    pub(super) async fn acquire(&self, ask: &AcquireRequest) -> PermitGrant {
        match self.request(ask).await {
            AcquireResult::Granted(grant) => grant,
            other => panic!("not granted but {other:?}: {:#?}", self.stats().await),
        }
    }

    /// Acquires one permit, which must be granted, and returns its id.
    pub(super) async fn acquire_one(&self, max: u32) -> PermitId {
        let ask = permit_request(max);
        self.acquire(&ask).await;
        ask.id
    }

    /// Sends a request that must be queued, and returns how many are before it.
    pub(super) async fn join_queue(&self, ask: &AcquireRequest) -> u32 {
        match self.request(ask).await {
            AcquireResult::Waiting { position, retry_after } => {
                assert!(retry_after > Duration::ZERO, "the client would poll without a pause");
                position
            }
            other => panic!("not queued but {other:?}"),
        }
    }

    /// Queues a request for one permit.
    pub(super) async fn queued_request(&self, max: u32) -> AcquireRequest {
        let ask = permit_request(max);
        self.join_queue(&ask).await;
        ask
    }

    /// Waits for a wake-up, which must come.
    pub(super) async fn await_wakeup(&self, id: PermitId) {
        let name = pool();
        let turn = self.permits.wait_for_wakeup(&name, id);
        assert!(tokio::time::timeout(WAKEUP_TIMEOUT, turn).await.is_ok(), "no wake-up came");
    }

    /// Waits for the permit as a client does: repeats the request after each wake-up.
    pub(super) async fn wait_and_acquire(&self, ask: &AcquireRequest) -> PermitGrant {
        loop {
            match self.request(ask).await {
                AcquireResult::Granted(grant) => return grant,
                AcquireResult::Waiting { .. } => self.await_wakeup(ask.id).await,
                other => panic!("not queued but {other:?}"),
            }
        }
    }

    pub(super) async fn release(&self, id: PermitId) {
        self.permits.release(&pool(), &[id], false).await.unwrap();
    }

    /// Leaves the wait queue after a timeout.
    pub(super) async fn time_out(&self, id: PermitId) {
        self.permits.release(&pool(), &[id], true).await.unwrap();
    }

    pub(super) async fn resize(&self, max: u32) {
        self.permits.resize(&pool(), max).await.unwrap();
    }

    pub(super) async fn extend(&self, ids: &[PermitId], ttl: Duration) -> Vec<PermitId> {
        self.permits.renew(&pool(), ids, ttl).await.unwrap()
    }

    /// The statistics of a pool that exists.
    pub(super) async fn stats(&self) -> PoolStats {
        self.permits.stats(&pool()).await.unwrap().unwrap()
    }

    /// The weight in use, and the number of queued requests.
    pub(super) async fn usage(&self) -> (u32, usize) {
        let stats = self.stats().await;
        (stats.in_use, stats.waiting.len())
    }
}
