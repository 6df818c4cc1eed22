//! A year of operation at speed: every day a tenant comes and goes, and new queues and batches are filled, emptied and
//! pruned, with failures, calls of models, audit entries and changes. Neither the store nor the time of a claim may grow
//! with the days that have passed.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows its figures"
)]

use std::time::{Duration, Instant};

use longshore_accounts::NewAuditEntry;
use longshore_core::call::{CallEnd, CallRecord, CallStatus, NewCall};
use longshore_core::store::{BatchChunk, ClaimRequest, FinishRequest, Retention, TenantChange};
use longshore_core::worker_session::NewSession;
use longshore_core::{
    BatchId, Failure, Kind, NewBatch, NewUnit, Outcome, Payload, Policy, ProfileName, QueueName, Scope,
    SessionId, TenantId,
};

use crate::StoreFixture;

const ALL: Scope = Scope::All;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Every so many units, one fails.
const FAILURE_INTERVAL: usize = 10;
/// Units per call of a model.
const UNITS_PER_CALL: u64 = 5;
/// Units per audit entry, which is a transaction of its own.
const UNITS_PER_AUDIT_ENTRY: u64 = 100;
const DAY: Duration = Duration::from_secs(24 * 3600);
const UNITS_PER_BATCH: u64 = 5;
/// Units that one call sends, claims or finishes.
const CHUNK: u32 = 500;

/// What a year brings; spread evenly over its days.
#[derive(Debug, Clone, Copy)]
pub struct Year {
    /// The number of days.
    pub days: u64,
    /// Units, besides those of batches.
    pub units: u64,
    /// Queues, each used on one day only.
    pub queues: u64,
    /// Batches of five units.
    pub batches: u64,
}

/// What was measured at the end of a day.
#[derive(Debug, Clone, Copy)]
pub struct DayReport {
    /// The mean time of a claim.
    pub claim: Duration,
    /// The size of the store.
    pub bytes: u64,
}

impl Year {
    /// Runs the year; `bytes` is the size of the store.
    ///
    /// # Panics
    /// If the store fails, or is inconsistent in the end.
    pub async fn run(&self, fixture: &StoreFixture, bytes: impl Fn() -> u64) -> Vec<DayReport> {
        let session = SessionId::new();
        let kinds = [(kind(), Policy::default())].into();
        let new = NewSession { kinds, slots: CHUNK, ..NewSession::new(session, "year") };
        fixture.store.open_session(new).await.unwrap();
        let mut days = Vec::new();
        for day in 0..self.days {
            let tenant = TenantId::new(format!("tenant-{day}")).unwrap();
            fixture.store.put_tenant(&ALL, &tenant, TenantChange::default()).await.unwrap();
            self.fill_queues(fixture, day, &tenant).await;
            self.fill_batches(fixture, day).await;
            let claim = work_off(fixture, session).await;
            self.record(fixture, &tenant).await;
            fixture.store.remove_tenant(&ALL, &tenant).await.unwrap();
            // Fewer days are longer, so that all that is kept for a month is pruned.
            fixture.clock.advance(YEAR / u32::try_from(self.days).unwrap());
            prune(fixture).await;
            days.push(DayReport { claim, bytes: bytes() });
        }
        assert_eq!(fixture.store.verify().await.unwrap(), []);
        days
    }

    /// Records the day's calls of models and audit entries.
    async fn record(&self, fixture: &StoreFixture, tenant: &TenantId) {
        let count = self.units.div_ceil(self.days * UNITS_PER_CALL);
        let profile = ProfileName::new("main").unwrap();
        let call = || CallRecord {
            call: NewCall::new(tenant.clone(), profile.clone(), "echo", "small"),
            end: Some(CallEnd::new(CallStatus::Success, "small")),
        };
        let calls: Vec<_> = (0..count).map(|_| call()).collect();
        for chunk in calls.chunks(CHUNK as usize) {
            fixture.ledger.record_calls(chunk.to_vec()).await.unwrap();
        }
        for number in 0..self.units.div_ceil(self.days * UNITS_PER_AUDIT_ENTRY) {
            let entry = NewAuditEntry {
                token: None,
                by: "127.0.0.1".into(),
                tenant: Some(tenant.clone()),
                action: "queue.pause".into(),
                target: format!("q-{number}"),
                detail: String::new(),
            };
            fixture.ledger.append(entry).await.unwrap();
        }
    }

    async fn fill_queues(&self, fixture: &StoreFixture, day: u64, tenant: &TenantId) {
        let queues = self.queues.div_ceil(self.days);
        let per_queue = self.units.div_ceil(queues * self.days);
        for number in 0..queues {
            let queue = QueueName::new(format!("day-{day}-{number}")).unwrap();
            let units: Vec<NewUnit> = (0..per_queue)
                .map(|_| NewUnit { queue: queue.clone(), tenant: tenant.clone(), ..unit() })
                .collect();
            for chunk in units.chunks(CHUNK as usize) {
                fixture.store.send(&ALL, chunk.to_vec()).await.unwrap();
            }
        }
    }

    async fn fill_batches(&self, fixture: &StoreFixture, day: u64) {
        for number in 0..self.batches.div_ceil(self.days) {
            let id = BatchId::new(format!("day-{day}-{number}")).unwrap();
            fixture.store.open_batch(&ALL, NewBatch::new(id.clone())).await.unwrap();
            let units = (0..UNITS_PER_BATCH).map(|_| unit()).collect();
            let chunk = BatchChunk { expected: String::new(), next: "1".into(), units };
            fixture.store.add_to_batch(&ALL, &id, chunk).await.unwrap();
            fixture.store.seal_batch(&ALL, &id).await.unwrap();
        }
    }
}

fn kind() -> Kind {
    Kind::new("work").unwrap()
}

fn unit() -> NewUnit {
    NewUnit::new(kind(), Payload::from(b"{}".as_slice()))
}

/// Claims and finishes all units; returns the mean time of a claim.
async fn work_off(fixture: &StoreFixture, session: SessionId) -> Duration {
    let (mut spent, mut claims) = (Duration::ZERO, 0);
    loop {
        let begun = Instant::now();
        let claim = ClaimRequest { free_slots: CHUNK, ..ClaimRequest::new(session, vec![kind()], CHUNK) };
        let held = fixture.store.claim(claim).await.unwrap().units;
        if held.is_empty() {
            return spent / claims.max(1);
        }
        spent += begun.elapsed();
        claims += 1;
        let outcome = |at: usize| match at.is_multiple_of(FAILURE_INTERVAL) {
            true => Outcome::Fail(Failure::new("error", "as one of ten")),
            false => Outcome::Done(None),
        };
        let ends =
            held.iter().enumerate().map(|(at, held)| FinishRequest::new(held.lease, outcome(at))).collect();
        fixture.store.finish(session, ends).await.unwrap();
    }
}

async fn prune(fixture: &StoreFixture) {
    let retention =
        Retention { done: DAY, failed: DAY, batches: 7 * DAY, audit_log: 7 * DAY, calls: 31 * DAY };
    while fixture.store.prune(retention, 1_000).await.unwrap().more {}
}

/// Asserts that the last third of the days took no more space or time than the middle third, beyond noise.
///
/// # Panics
/// If it did.
pub fn assert_flat(days: &[DayReport]) {
    let third = days.len() / 3;
    let median = |part: &[DayReport]| {
        let mut claims: Vec<Duration> = part.iter().map(|day| day.claim).collect();
        let mut bytes: Vec<u64> = part.iter().map(|day| day.bytes).collect();
        claims.sort_unstable();
        bytes.sort_unstable();
        (claims[claims.len() / 2], bytes[bytes.len() / 2])
    };
    let (middle, last) = (median(&days[third..2 * third]), median(&days[2 * third..]));
    println!("claim, bytes: {middle:?} in the middle, {last:?} in the end");
    assert!(last.0 < middle.0 * 3, "claims became slower: {middle:?}, then {last:?}");
    assert!(last.1 < middle.1 + middle.1 / 4, "the store grows: {middle:?}, then {last:?}");
}
