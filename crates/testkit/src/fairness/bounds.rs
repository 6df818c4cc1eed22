//! Bounds: 32 senders at once, and never one unit or byte too many.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::{
    Capacity, LaneChange, QueueChange, Refusal, Sent, TenantChange, UnitFilter,
};
use longshore_core::{NewUnit, Outcome, Payload, QueueName, TenantId, UnitId};
use tokio::task::JoinSet;

use super::{ALL, claim, finish, queue, session, tenant, unit, verify};
use crate::World;

const SENDERS: usize = 32;
/// Units of each sender: more in all than any bound here.
const EACH: usize = 50;
const BYTES: u64 = 7;

/// What has the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A queue, in units.
    Queue,
    /// One tenant's lane, in units.
    Lane,
    /// A tenant over two queues, in units.
    Tenant,
    /// A queue, in bytes of payload.
    Bytes,
}

/// Invariant `bounded`: 32 senders at once against a bound of 1,000 units (or of 5,000 bytes). First
/// nobody takes anything out: exactly as many are admitted as fit, those are there, and no other is.
/// Then a worker makes room while the senders try again: never one too many, and in the end all
/// have been in.
pub async fn thirty_two_senders_never_exceed_a_bound(world: &World, limit: Limit) {
    let crowd = Arc::new(Crowd::new(world, limit).await);
    let sent = crowd.send_all(false).await;
    let fit = usize::try_from(crowd.fits()).unwrap();
    assert_eq!(sent.len(), fit, "as many as fit, and all of those");
    assert_eq!(crowd.live().await, crowd.fits());
    assert_eq!(crowd.listed().await, sent, "what was admitted is there, what was refused is not");
    let (working, sending) = tokio::join!(crowd.empty_the_queues(), crowd.send_all(true));
    assert_eq!(sending.len(), SENDERS * EACH);
    assert_eq!(working, fit + SENDERS * EACH, "all of them ran");
    assert_eq!(crowd.live().await, 0);
    verify(world).await;
}

struct Crowd {
    world: World,
    limit: Limit,
    who: TenantId,
    on: [QueueName; 2],
}

impl Crowd {
    async fn new(world: &World, limit: Limit) -> Self {
        let who = tenant("acme");
        let other = if limit == Limit::Tenant { "two" } else { "one" };
        let on = [queue("one"), queue(other)];
        let crowd = Self { world: world.clone(), limit, who, on };
        crowd.set().await;
        crowd
    }

    async fn set(&self) {
        let Self { who, on: [one, _], .. } = self;
        let store = &self.world.store;
        let units = Some(Capacity { units: Some(1_000), bytes: None });
        let bytes = Some(Capacity { units: None, bytes: Some(5_000) });
        let (paused, of_lane) = (None, LaneChange { capacity: units, ..LaneChange::default() });
        match self.limit {
            Limit::Queue => {
                store.change_queue(&ALL, one, QueueChange { paused, capacity: units }).await
            }
            Limit::Bytes => {
                store.change_queue(&ALL, one, QueueChange { paused, capacity: bytes }).await
            }
            Limit::Lane => store.change_lane(&ALL, one, who, of_lane).await,
            Limit::Tenant => {
                let change = TenantChange { capacity: units, ..TenantChange::default() };
                store.put_tenant(&ALL, who, change).await.map(drop)
            }
        }
        .unwrap();
    }

    /// How many units fit.
    fn fits(&self) -> u64 {
        if self.limit == Limit::Bytes { 5_000 / BYTES } else { 1_000 }
    }

    /// All senders at once; which units were admitted.
    async fn send_all(self: &Arc<Self>, stubborn: bool) -> BTreeSet<UnitId> {
        let mut senders = JoinSet::new();
        for nth in 0..SENDERS {
            let crowd = Arc::clone(self);
            senders.spawn(async move { crowd.send_some(nth, stubborn).await });
        }
        let mut admitted = BTreeSet::new();
        while let Some(sent) = senders.join_next().await {
            admitted.extend(sent.unwrap());
        }
        admitted
    }

    /// One sender's units, a few at a time; a stubborn one tries again until all are in.
    async fn send_some(&self, nth: usize, stubborn: bool) -> Vec<UnitId> {
        let mut left: Vec<NewUnit> = (0..EACH).map(|i| self.unit(nth + i)).collect();
        let mut admitted = Vec::new();
        while !left.is_empty() {
            let most = left.len().min(1 + nth % 7);
            let chunk: Vec<NewUnit> = left.drain(..most).collect();
            let answers = self.world.store.send(&ALL, chunk.clone()).await.unwrap();
            self.look().await;
            let mut refused = Vec::new();
            for (unit, answer) in chunk.into_iter().zip(answers) {
                match answer {
                    Sent::Created(id) => admitted.push(id),
                    Sent::Refused(Refusal::Full { .. }) => refused.push(unit),
                    other => unreachable!("{other:?}"),
                }
            }
            if stubborn && !refused.is_empty() {
                left.append(&mut refused);
                let soon = Duration::from_millis(50);
                self.world.store.changes(&ALL, u64::MAX, soon).await.unwrap();
            }
        }
        admitted
    }

    fn unit(&self, nth: usize) -> NewUnit {
        let payload = Payload::from(vec![b'x'; usize::try_from(BYTES).unwrap()]);
        NewUnit { payload, ..unit(&self.who, &self.on[nth % 2]) }
    }

    async fn live(&self) -> u64 {
        let lanes = self.world.store.queues(&ALL).await.unwrap();
        lanes.iter().map(|lane| lane.counts.live()).sum()
    }

    async fn look(&self) {
        let live = self.live().await;
        assert!(live <= self.fits(), "{live} units are in, {} may be", self.fits());
    }

    async fn listed(&self) -> BTreeSet<UnitId> {
        let mut found = BTreeSet::new();
        let mut after = None;
        loop {
            let filter = UnitFilter::default();
            let store = &self.world.store;
            let page = store.units(&ALL, &filter, after.as_deref(), 500).await.unwrap();
            found.extend(page.items.iter().map(|unit| unit.id));
            let Some(next) = page.next else { return found };
            after = Some(next);
        }
    }

    /// Runs units until all that will ever come have come; how many.
    async fn empty_the_queues(&self) -> usize {
        let session = session(&self.world).await;
        let (mut ran, mut seen) = (0, 0);
        let all = usize::try_from(self.fits()).unwrap() + SENDERS * EACH;
        while ran < all {
            let held = claim(&self.world, session, 40).await;
            if held.is_empty() {
                seen = self.world.store.wake(seen, Duration::from_millis(100)).await;
            }
            finish(&self.world, session, &held, &Outcome::Done(None)).await;
            ran += held.len();
        }
        ran
    }
}
