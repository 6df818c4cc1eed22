//! Bounds: 32 concurrent senders never exceed a limit of units or bytes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::{
    Capacity, LaneChange, QueueChange, SendRejection, SendResult, TenantChange, UnitFilter,
};
use longshore_core::{NewUnit, Outcome, Payload, QueueName, TenantId, UnitId};
use tokio::task::JoinSet;

use super::{ALL, claim, finish, queue, session, tenant, unit, verify};
use crate::StoreFixture;

const SENDERS: usize = 32;
/// Units of each sender; the total is larger than every bound in this file.
const UNITS_PER_SENDER: usize = 50;
const PAYLOAD_BYTES: u64 = 70;

/// The scope and unit of the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundScope {
    /// A queue, in units.
    Queue,
    /// One tenant's lane, in units.
    Lane,
    /// A tenant over two queues, in units.
    Tenant,
    /// A queue, in bytes of payload.
    Bytes,
}

/// Invariant `bounded`: 32 concurrent senders against a bound of 1,000 units (or of 5,000 bytes). First
/// without a worker: the store admits exactly as many units as fit, and lists these and no others. Then
/// a worker makes room while the senders retry: the bound is never exceeded, and at the end all units
/// were admitted.
pub async fn thirty_two_senders_never_exceed_a_bound(fixture: &StoreFixture, limit: BoundScope) {
    let senders = Arc::new(SenderGroup::new(fixture, limit).await);
    let sent = senders.send_all(false).await;
    let bound = usize::try_from(senders.bound()).unwrap();
    assert_eq!(sent.len(), bound, "the store admits as many units as fit");
    assert_eq!(senders.live().await, senders.bound());
    assert_eq!(senders.list_units().await, sent, "exactly the admitted units are listed");
    let (worked, resent) = tokio::join!(senders.run_all_units(), senders.send_all(true));
    assert_eq!(resent.len(), SENDERS * UNITS_PER_SENDER);
    assert_eq!(worked, bound + SENDERS * UNITS_PER_SENDER, "all units ran");
    assert_eq!(senders.live().await, 0);
    verify(fixture).await;
}

struct SenderGroup {
    fixture: StoreFixture,
    limit: BoundScope,
    tenant_id: TenantId,
    queues: [QueueName; 2],
}

impl SenderGroup {
    async fn new(fixture: &StoreFixture, limit: BoundScope) -> Self {
        let tenant_id = tenant("acme");
        let other = if limit == BoundScope::Tenant { "two" } else { "one" };
        let queues = [queue("one"), queue(other)];
        let senders = Self { fixture: fixture.clone(), limit, tenant_id, queues };
        senders.configure().await;
        senders
    }

    async fn configure(&self) {
        let Self { tenant_id, queues: [one, _], .. } = self;
        let store = &self.fixture.store;
        let units = Some(Capacity { units: Some(1_000), bytes: None });
        let bytes = Some(Capacity { units: None, bytes: Some(50_000) });
        let (paused, of_lane) = (None, LaneChange { capacity: units, ..LaneChange::default() });
        match self.limit {
            BoundScope::Queue => store.change_queue(&ALL, one, QueueChange { paused, capacity: units }).await,
            BoundScope::Bytes => store.change_queue(&ALL, one, QueueChange { paused, capacity: bytes }).await,
            BoundScope::Lane => store.change_lane(&ALL, one, tenant_id, of_lane).await,
            BoundScope::Tenant => {
                let change = TenantChange { capacity: units, ..TenantChange::default() };
                store.put_tenant(&ALL, tenant_id, change).await.map(drop)
            }
        }
        .unwrap();
    }

    /// The bound in units.
    fn bound(&self) -> u64 {
        if self.limit == BoundScope::Bytes { 50_000 / PAYLOAD_BYTES } else { 1_000 }
    }

    /// Runs all senders concurrently and returns the admitted units.
    async fn send_all(self: &Arc<Self>, retry_rejected: bool) -> BTreeSet<UnitId> {
        let mut tasks = JoinSet::new();
        for nth in 0..SENDERS {
            let senders = Arc::clone(self);
            tasks.spawn(async move { senders.send_some(nth, retry_rejected).await });
        }
        let mut admitted = BTreeSet::new();
        while let Some(sent) = tasks.join_next().await {
            admitted.extend(sent.unwrap());
        }
        admitted
    }

    /// Sends one sender's units in small chunks; with `retry_rejected`, until all are admitted.
    async fn send_some(&self, nth: usize, retry_rejected: bool) -> Vec<UnitId> {
        let mut left: Vec<NewUnit> = (0..UNITS_PER_SENDER).map(|i| self.unit(nth + i)).collect();
        let mut admitted = Vec::new();
        while !left.is_empty() {
            let chunk_size = left.len().min(1 + nth % 7);
            let chunk: Vec<NewUnit> = left.drain(..chunk_size).collect();
            let answers = self.fixture.store.send(&ALL, chunk.clone()).await.unwrap();
            self.assert_within_bound().await;
            let mut rejected = Vec::new();
            for (unit, answer) in chunk.into_iter().zip(answers) {
                match answer {
                    SendResult::Created(id) => admitted.push(id),
                    SendResult::Rejected(SendRejection::Full { .. }) => rejected.push(unit),
                    other => unreachable!("{other:?}"),
                }
            }
            if retry_rejected && !rejected.is_empty() {
                left.append(&mut rejected);
                let retry_pause = Duration::from_millis(50);
                self.fixture.store.changes(&ALL, u64::MAX, retry_pause).await.unwrap();
            }
        }
        admitted
    }

    fn unit(&self, nth: usize) -> NewUnit {
        let payload = Payload::from(vec![b'x'; usize::try_from(PAYLOAD_BYTES).unwrap()]);
        NewUnit { payload, ..unit(&self.tenant_id, &self.queues[nth % 2]) }
    }

    async fn live(&self) -> u64 {
        let lanes = self.fixture.store.queues(&ALL).await.unwrap();
        lanes.iter().map(|lane| lane.counts.live()).sum()
    }

    async fn assert_within_bound(&self) {
        let live = self.live().await;
        assert!(live <= self.bound(), "{live} units are live, the bound is {}", self.bound());
    }

    async fn list_units(&self) -> BTreeSet<UnitId> {
        let mut found = BTreeSet::new();
        let mut after = None;
        loop {
            let filter = UnitFilter::default();
            let store = &self.fixture.store;
            let page = store.units(&ALL, &filter, after.as_deref(), 500).await.unwrap();
            found.extend(page.items.iter().map(|unit| unit.id));
            let Some(next) = page.next else { return found };
            after = Some(next);
        }
    }

    /// Runs units until all that will be sent have run, and returns their number.
    async fn run_all_units(&self) -> usize {
        let session = session(&self.fixture).await;
        let (mut ran, mut version) = (0, 0);
        let all = usize::try_from(self.bound()).unwrap() + SENDERS * UNITS_PER_SENDER;
        while ran < all {
            let held = claim(&self.fixture, session, 40).await;
            if held.is_empty() {
                version = self.fixture.store.wait_for_ready(version, Duration::from_millis(100)).await;
            }
            finish(&self.fixture, session, &held, &Outcome::Done(None)).await;
            ran += held.len();
        }
        ran
    }
}
