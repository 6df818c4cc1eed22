//! The order of waiting questions, and what to draw for them.
//!
//! Pure except for the channels to the waiters. A tenant's questions are served in order of arrival.
//! Between tenants that wait for the same bucket, the one that was served the least of it for its
//! weight is next ([`TenantPasses`]), so that a tenant with many or large questions takes no more than its share.
//! No question takes from a bucket that one before it waits for. A question that waits for one bucket
//! does not block its other buckets for later questions: a tenant that has used up its own limit
//! does not block the tenants with which it shares a profile.

use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use longshore::TenantId;
use longshore::accounts::{BucketRequest, DrawResult};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::LimitError;
use crate::profile::WhenPoolFull;
use crate::resilience::{BucketCharge, LeasePart, TenantPasses, TokenLease, WaitingTenant};

/// How long settlements are collected before they are sent.
const SETTLE_DELAY: Duration = Duration::from_millis(100);

/// Longest time until an empty bucket is asked again: another process may have returned something.
const MAX_RECHECK_DELAY: Duration = Duration::from_secs(1);

/// Delay after the store could not be reached.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The result for a waiter.
pub(super) type WaitResult = Result<Grant, LimitError>;

/// What was reserved, by bucket.
pub(super) type Grant = Vec<(Arc<str>, Vec<LeasePart>)>;

#[derive(Debug, Default)]
pub(super) struct LimitQueue {
    buckets: HashMap<Arc<str>, Bucket>,
    /// In the order in which they are served.
    waiters: Vec<Waiter>,
    /// The tenants of the waiters.
    tenants: HashSet<TenantId>,
    /// Buckets that a question waits for.
    wanted: HashSet<Arc<str>>,
    next: u64,
    /// The store could not be reached; not called before this time.
    unavailable_until: Option<Instant>,
    /// A task is running the queue.
    pub(super) running: bool,
}

#[derive(Debug, Default)]
struct Bucket {
    lease: TokenLease,
    /// The bucket was empty; asked again at this time.
    retry_at: Option<Instant>,
    /// When the store expects enough, and for what amount.
    full_until: Option<(Instant, f64)>,
    /// What each tenant was served, in minutes of the bucket's refill.
    passes: TenantPasses,
    refill: Refill,
    /// What to return (or to charge, if negative), by which limits, and when.
    credit: f64,
    settle: Option<(BucketCharge, Instant)>,
}

/// Whether a draw in advance is needed.
#[derive(Debug, Default)]
enum Refill {
    #[default]
    None,
    /// To be drawn.
    Wanted(BucketCharge),
    /// Being drawn.
    Drawing,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    tenant: WaitingTenant,
    charges: Arc<[BucketCharge]>,
    until: Instant,
    when_full: WhenPoolFull,
    tell: oneshot::Sender<WaitResult>,
}

/// A waiter's position in the queue.
pub(super) struct QueueEntry {
    pub(super) id: u64,
    pub(super) result: oneshot::Receiver<WaitResult>,
    pub(super) has_work: bool,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum QueueStep {
    /// Nothing, until a question arrives.
    Idle,
    /// Nothing before this time, unless a question arrives.
    Wait(Instant),
    /// Settle these amounts.
    Settle(Vec<(BucketCharge, f64)>),
    /// Draw these amounts.
    Draw(Vec<BucketRequest>),
}

impl LimitQueue {
    /// Takes everything at once, if no question waits for the same buckets and there is enough; or
    /// nothing. Returns whether a draw in advance is needed for the next questions.
    pub(super) fn take_now(&mut self, charges: &[BucketCharge], now: Instant) -> Option<bool> {
        let free = |charge: &BucketCharge| !self.wanted.contains(&charge.bucket) && self.has(charge, now);
        if !charges.iter().all(free) {
            return None;
        }
        let mut has_work = false;
        for charge in charges {
            if let Some(bucket) = self.buckets.get_mut(&charge.bucket) {
                bucket.lease.take_for_use(charge.amount, now);
                has_work |= bucket.runs_low(charge, now);
            }
        }
        Some(has_work)
    }

    /// Adds a question; serves it at once if no other waits and there is enough. Also returns
    /// whether the task has new work: not if others wait for the same buckets already, unless it is
    /// the first of its tenant, which overtakes them.
    pub(super) fn join(
        &mut self,
        tenant: &WaitingTenant,
        charges: Arc<[BucketCharge]>,
        until: Instant,
        when_full: WhenPoolFull,
        now: Instant,
    ) -> QueueEntry {
        let (tell, result) = oneshot::channel();
        self.next += 1;
        let id = self.next;
        let waiter = Waiter { id, tenant: tenant.clone(), charges, until, when_full, tell };
        if !self.waiters.is_empty() && !self.tenants.contains(&tenant.id) {
            self.overtake(waiter, now);
            return QueueEntry { id, result, has_work: true };
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        let before = wanted.len();
        if let Some(waiter) = self.serve_one(waiter, &mut wanted, now) {
            self.tenants.insert(waiter.tenant.id.clone());
            self.waiters.push(waiter);
        }
        let has_work = wanted.len() > before;
        self.wanted = wanted;
        QueueEntry { id, result, has_work }
    }

    /// Adds the first question of a tenant. What is known of a bucket's next refill was asked for
    /// another question, and says nothing about a smaller one.
    fn overtake(&mut self, waiter: Waiter, now: Instant) {
        for charge in waiter.charges.iter() {
            let bucket = self.bucket(&charge.bucket);
            if bucket.full_until.is_some_and(|(_, amount)| charge.amount < amount) {
                (bucket.retry_at, bucket.full_until) = (None, None);
            }
        }
        self.waiters.push(waiter);
        self.serve(now);
    }

    /// Removes a question that was not served. Returns whether the ones behind it need less, so
    /// that they may be served sooner.
    pub(super) fn leave(&mut self, id: u64) -> bool {
        let Some(position) = self.waiters.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        let mut less = false;
        for charge in self.waiters.remove(position).charges.iter() {
            let mut others = self.waiters.iter().flat_map(|waiter| waiter.charges.iter());
            let next = others.find(|other| other.bucket == charge.bucket);
            if next.is_none() {
                self.wanted.remove(&charge.bucket);
            }
            if next.is_none_or(|next| next.amount < charge.amount) {
                let bucket = self.bucket(&charge.bucket);
                (bucket.retry_at, bucket.full_until, less) = (None, None, true);
            }
        }
        less
    }

    /// A question was served and dropped: what was taken for it is available again.
    pub(super) fn put_back(&mut self, grant: Grant, now: Instant) {
        for (bucket, parts) in grant {
            self.bucket(&bucket).lease.put_back(parts);
        }
        self.serve(now);
    }

    /// Returns so much of what was taken, or charges more afterwards. Returns whether it is the
    /// first pending settlement: only then the task has to be notified.
    pub(super) fn credit(&mut self, charge: &BucketCharge, credit: f64, now: Instant) -> bool {
        let bucket = self.bucket(&charge.bucket);
        bucket.credit += credit;
        match &mut bucket.settle {
            Some((newest, _)) => {
                newest.clone_from(charge);
                false
            }
            none => {
                *none = Some((charge.clone(), now + SETTLE_DELAY));
                true
            }
        }
    }

    /// Serves all questions that can be served, in order.
    fn serve(&mut self, now: Instant) {
        self.sort();
        let mut wanted = HashSet::default();
        self.tenants.clear();
        for waiter in std::mem::take(&mut self.waiters) {
            if let Some(waiter) = self.serve_one(waiter, &mut wanted, now) {
                if !self.tenants.contains(&waiter.tenant.id) {
                    self.tenants.insert(waiter.tenant.id.clone());
                }
                self.waiters.push(waiter);
            }
        }
        self.wanted = wanted;
    }

    /// Sorts the waiters by the pass at which each is served, of the buckets that several tenants
    /// wait for. A tenant's next question counts what its questions before it will take.
    fn sort(&mut self) {
        if self.waiters.windows(2).all(|two| two[0].tenant.id == two[1].tenant.id) {
            return;
        }
        let mut contended: HashMap<&Arc<str>, Option<&TenantId>> = HashMap::default();
        for waiter in &self.waiters {
            for charge in waiter.charges.iter() {
                let only = contended.entry(&charge.bucket).or_insert(Some(&waiter.tenant.id));
                *only = only.filter(|tenant| **tenant == waiter.tenant.id);
            }
        }
        let mut queued: HashMap<(&Arc<str>, &TenantId), f64> = HashMap::default();
        let mut starts = HashMap::default();
        for waiter in &self.waiters {
            let mut start = 0.0_f64;
            for charge in waiter.charges.iter().filter(|charge| contended[&charge.bucket].is_none()) {
                let lead =
                    || self.buckets.get(&charge.bucket).map_or(0.0, |b| b.passes.lead(&waiter.tenant.id));
                let pass = queued.entry((&charge.bucket, &waiter.tenant.id)).or_insert_with(lead);
                start = start.max(*pass);
                *pass += waiter.tenant.stride(charge.minutes());
            }
            starts.insert(waiter.id, start);
        }
        self.waiters.sort_by(|one, other| starts[&one.id].total_cmp(&starts[&other.id]));
    }

    /// Serves or rejects a question, or returns it to keep waiting.
    fn serve_one(&mut self, waiter: Waiter, wanted: &mut HashSet<Arc<str>>, now: Instant) -> Option<Waiter> {
        if waiter.tell.is_closed() {
            return None;
        }
        let short: Vec<&BucketCharge> = waiter
            .charges
            .iter()
            .filter(|charge| wanted.contains(&charge.bucket) || !self.has(charge, now))
            .collect();
        if short.is_empty() {
            self.grant(waiter, now);
            return None;
        }
        let full_until = |charge: &BucketCharge| self.full_until(charge, wanted, now);
        let full = short.iter().filter_map(|charge| Some((full_until(charge)?, charge)));
        match full.max_by_key(|(until, _)| *until) {
            Some((at, charge)) if waiter.when_full == WhenPoolFull::Refuse || at >= waiter.until => {
                let full = LimitError::Reached { bucket: charge.bucket.to_string(), wait: at - now };
                let _ = waiter.tell.send(Err(full));
                None
            }
            _ => {
                for charge in short {
                    if !wanted.contains(&charge.bucket) {
                        wanted.insert(Arc::clone(&charge.bucket));
                    }
                }
                Some(waiter)
            }
        }
    }

    fn has(&self, charge: &BucketCharge, now: Instant) -> bool {
        self.buckets.get(&charge.bucket).is_some_and(|bucket| bucket.lease.has(charge.amount, now))
    }

    /// When there is enough, as far as is known: for this amount, or for a question before this one.
    fn full_until(&self, charge: &BucketCharge, wanted: &HashSet<Arc<str>>, now: Instant) -> Option<Instant> {
        let (until, amount) = self.buckets.get(&charge.bucket)?.full_until?;
        let known = charge.amount >= amount || wanted.contains(&charge.bucket);
        (known && now < until).then_some(until)
    }

    fn grant(&mut self, waiter: Waiter, now: Instant) {
        let mut grant = Grant::new();
        for charge in waiter.charges.iter() {
            let bucket = self.bucket(&charge.bucket);
            let parts = bucket.lease.take(charge.amount, now);
            bucket.passes.serve(&waiter.tenant, charge.minutes());
            grant.push((Arc::clone(&charge.bucket), parts));
        }
        if let Err(Ok(grant)) = waiter.tell.send(Ok(grant)) {
            for (bucket, parts) in grant {
                self.bucket(&bucket).lease.put_back(parts);
            }
        }
    }

    fn bucket(&mut self, name: &Arc<str>) -> &mut Bucket {
        self.buckets.entry(Arc::clone(name)).or_default()
    }

    /// What to do now.
    pub(super) fn plan(&mut self, now: Instant) -> QueueStep {
        self.serve(now);
        if let Some(until) = self.unavailable_until.filter(|until| now < *until) {
            return if self.is_idle() { self.go_idle(now) } else { QueueStep::Wait(until) };
        }
        let settled = self.settlements(now);
        if !settled.is_empty() {
            return QueueStep::Settle(settled);
        }
        let mut draws = self.draws(now);
        self.refill(&mut draws, now);
        if !draws.is_empty() {
            return QueueStep::Draw(draws);
        }
        if self.is_idle() { self.go_idle(now) } else { QueueStep::Wait(self.next_check(now)) }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.buckets.values().all(Bucket::has_no_work)
    }

    fn go_idle(&mut self, now: Instant) -> QueueStep {
        self.running = false;
        self.buckets.retain(|_, bucket| {
            !bucket.lease.is_idle(now) || bucket.full_until.is_some_and(|(until, _)| now < until)
        });
        QueueStep::Idle
    }

    fn settlements(&mut self, now: Instant) -> Vec<(BucketCharge, f64)> {
        let due = |bucket: &Bucket| bucket.settle.as_ref().is_some_and(|(_, at)| *at <= now);
        let due = self.buckets.values_mut().filter(|bucket| due(bucket));
        due.filter_map(|bucket| {
            let (charge, _) = bucket.settle.take()?;
            let credit = std::mem::take(&mut bucket.credit);
            (credit != 0.0).then_some((charge, credit))
        })
        .collect()
    }

    /// What is missing for the waiting questions. If one of a question's buckets was empty, only
    /// that bucket is asked: what the others gave would expire meanwhile.
    fn draws(&self, now: Instant) -> Vec<BucketRequest> {
        let mut wants: Vec<(&BucketCharge, f64)> = Vec::new();
        for waiter in &self.waiters {
            let too_early = |charge: &BucketCharge| self.retry_at(charge).is_some_and(|at| now < at);
            if waiter.charges.iter().any(too_early) {
                continue;
            }
            for charge in self.missing(waiter, now) {
                match wants.iter_mut().find(|(first, _)| first.bucket == charge.bucket) {
                    Some((_, queued)) => *queued += charge.amount,
                    None => wants.push((charge, charge.amount)),
                }
            }
        }
        let fresh = TokenLease::default();
        let draw = |(charge, queued): (&BucketCharge, f64)| {
            let lease = self.buckets.get(&charge.bucket).map_or(&fresh, |bucket| &bucket.lease);
            charge.draw(lease, queued, now)
        };
        wants.into_iter().map(draw).collect()
    }

    /// Adds the draws in advance for buckets that are not drawn anyway.
    fn refill(&mut self, draws: &mut Vec<BucketRequest>, now: Instant) {
        for bucket in self.buckets.values_mut() {
            let Refill::Wanted(charge) = std::mem::take(&mut bucket.refill) else { continue };
            let drawn = draws.iter().any(|draw| *draw.bucket == *charge.bucket);
            if let Some(draw) = charge.refill(&bucket.lease, now).filter(|_| !drawn) {
                bucket.refill = Refill::Drawing;
                draws.push(draw);
            }
        }
    }

    fn missing<'a>(&self, waiter: &'a Waiter, now: Instant) -> Vec<&'a BucketCharge> {
        let missing: Vec<&BucketCharge> = waiter.charges.iter().filter(|n| !self.has(n, now)).collect();
        let scarce = |charge: &&BucketCharge| self.retry_at(charge).is_some();
        let scarce: Vec<&BucketCharge> = missing.iter().copied().filter(scarce).collect();
        if scarce.is_empty() { missing } else { scarce }
    }

    fn retry_at(&self, charge: &BucketCharge) -> Option<Instant> {
        self.buckets.get(&charge.bucket)?.retry_at
    }

    fn next_check(&self, now: Instant) -> Instant {
        let looks = self.buckets.values().filter_map(|bucket| bucket.retry_at);
        let settles = self.buckets.values().filter_map(|b| b.settle.as_ref().map(|(_, at)| *at));
        looks.chain(settles).filter(|at| now < *at).min().unwrap_or(now + MAX_RECHECK_DELAY)
    }

    /// Adds what a draw brought that was started at `started`.
    pub(super) fn add_draws(
        &mut self,
        draws: &[BucketRequest],
        drawn: &[DrawResult],
        started: Instant,
        now: Instant,
    ) {
        self.unavailable_until = None;
        for (draw, drawn) in draws.iter().zip(drawn) {
            let bucket = self.bucket(&Arc::from(draw.bucket.as_str()));
            bucket.refill = Refill::None;
            if drawn.taken > 0.0 {
                bucket.lease.add(drawn.taken, started, now);
                (bucket.retry_at, bucket.full_until) = (None, None);
            } else {
                // A zero wait would loop forever.
                let wait = drawn.wait.max(Duration::from_millis(1));
                bucket.retry_at = Some(now + wait.min(MAX_RECHECK_DELAY));
                bucket.full_until = Some((now + wait, draw.minimum));
            }
        }
        self.serve(now);
    }

    /// The store could not be reached, and may be later.
    pub(super) fn store_unavailable(&mut self, now: Instant) {
        self.unavailable_until = Some(now + RETRY_DELAY);
        self.buckets.values_mut().for_each(|bucket| bucket.refill = Refill::None);
    }

    /// The store failed: all waiting questions fail.
    pub(super) fn store_failed(&mut self, why: &str) {
        for waiter in std::mem::take(&mut self.waiters) {
            let _ = waiter.tell.send(Err(LimitError::Store(why.to_owned())));
        }
        self.wanted.clear();
        self.tenants.clear();
        self.buckets.values_mut().for_each(|bucket| bucket.refill = Refill::None);
    }
}

impl Bucket {
    /// Plans a draw in advance if the bucket runs low; returns whether it is new.
    fn runs_low(&mut self, charge: &BucketCharge, now: Instant) -> bool {
        // A bucket that was empty is drawn only for waiting questions.
        let asked = !matches!(self.refill, Refill::None) || self.retry_at.is_some();
        if asked || charge.refill(&self.lease, now).is_none() {
            return false;
        }
        self.refill = Refill::Wanted(charge.clone());
        true
    }

    /// Whether nothing is pending for it.
    fn has_no_work(&self) -> bool {
        self.settle.is_none() && !matches!(self.refill, Refill::Wanted(_))
    }
}
