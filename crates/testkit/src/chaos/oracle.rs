//! The referee's model of the pool. Pure: the caller passes the time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longshore_core::PermitId;

/// Which requests were made, which permits are held, and which guarantees were violated.
#[derive(Debug)]
pub(super) struct Oracle {
    ttl: Duration,
    queue_ttl: Duration,
    requests: HashMap<PermitId, RequestRecord>,
    held: HashMap<PermitId, HeldPermit>,
    /// Every maximum that the pool had, or may have had.
    maxima: Vec<PoolMax>,
    /// Grows with every recorded request and wait.
    events: u64,
    /// Grows with every restart of the server.
    pub(super) server_epoch: u64,
    pub(super) granted: u64,
    pub(super) peak_weight: u32,
    /// Guarantees that the pool broke.
    pub(super) violations: Vec<String>,
}

#[derive(Debug)]
struct RequestRecord {
    /// A time before the last request or renewal was sent.
    sent_at: Instant,
    /// The epoch of the server at that time. Its answer may be recorded in a later epoch.
    server_epoch: u64,
    /// The pool granted no permit before this time.
    not_granted_before: Instant,
    first_event: u64,
    /// The event and the epoch at which the request was known to wait in the queue.
    queued: Option<(u64, u64)>,
    /// Whether its place in the queue may have expired or been lost in a restart.
    may_have_lost_place: bool,
    fence: Option<u64>,
}

#[derive(Debug)]
struct HeldPermit {
    weight: u32,
    fence: u64,
    expires_at: Instant,
}

#[derive(Debug)]
struct PoolMax {
    max: u32,
    replaced_at: Option<Instant>,
}

impl Oracle {
    pub(super) fn new(ttl: Duration, queue_ttl: Duration, max: u32) -> Self {
        Self {
            ttl,
            queue_ttl,
            requests: HashMap::new(),
            held: HashMap::new(),
            maxima: vec![PoolMax { max, replaced_at: None }],
            events: 0,
            server_epoch: 0,
            granted: 0,
            peak_weight: 0,
            violations: Vec::new(),
        }
    }

    /// A process is about to send a request or a renewal.
    pub(super) fn record_request(&mut self, id: PermitId, now: Instant) {
        self.events += 1;
        let server_epoch = self.server_epoch;
        let new = RequestRecord {
            sent_at: now,
            server_epoch,
            not_granted_before: now,
            first_event: self.events,
            queued: None,
            may_have_lost_place: false,
            fence: None,
        };
        let request = self.requests.entry(id).or_insert(new);
        (request.sent_at, request.server_epoch) = (now, server_epoch);
    }

    /// The pool queued the request.
    pub(super) fn record_wait(&mut self, id: PermitId, now: Instant) {
        self.events += 1;
        let Some(request) = self.requests.get_mut(&id) else { return };
        // Its place began after `not_granted_before` and was renewed before `now`.
        request.may_have_lost_place |=
            request.queued.is_some() && now - request.not_granted_before >= self.queue_ttl;
        request.not_granted_before = request.sent_at;
        request.queued.get_or_insert((self.events, request.server_epoch));
    }

    /// The pool granted the request.
    pub(super) fn record_grant(&mut self, id: PermitId, fence: u64, weight: u32, now: Instant) {
        let server_epoch = self.server_epoch;
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.may_have_lost_place |= request.queued.is_some_and(|(_, epoch)| epoch != server_epoch);
        request.may_have_lost_place |= now - request.not_granted_before >= self.queue_ttl;
        request.fence = Some(fence);
        let expires_at = request.sent_at + self.ttl;
        self.granted += 1;
        self.held.insert(id, HeldPermit { weight, fence, expires_at });
        self.check_capacity(now);
    }

    /// The pool renewed the lease.
    pub(super) fn record_renewal(&mut self, id: PermitId, now: Instant) {
        let Some(request) = self.requests.get(&id) else { return };
        if let Some(held) = self.held.get_mut(&id) {
            held.expires_at = request.sent_at + self.ttl;
        }
        self.check_capacity(now);
    }

    /// A process is about to release its permit, or was told that its lease expired.
    pub(super) fn record_release(&mut self, id: PermitId) {
        self.held.remove(&id);
    }

    /// From now on the pool may have this maximum.
    pub(super) fn begin_resize(&mut self, max: u32) {
        self.maxima.push(PoolMax { max, replaced_at: None });
    }

    /// The pool has the latest maximum.
    pub(super) fn finish_resize(&mut self, now: Instant) {
        let last = self.maxima.len() - 1;
        for older in &mut self.maxima[..last] {
            older.replaced_at.get_or_insert(now);
        }
    }

    /// The weight held must fit the largest maximum that was possible at the latest grant.
    fn check_capacity(&mut self, now: Instant) {
        self.held.retain(|_, held| held.expires_at > now);
        let weight_held: u32 = self.held.values().map(|held| held.weight).sum();
        self.peak_weight = self.peak_weight.max(weight_held);
        let Some((last, _)) = self.held.iter().max_by_key(|(_, held)| held.fence) else { return };
        let granted_after = self.requests[last].not_granted_before;
        let maxima = self.maxima.iter().filter(|one| one.replaced_at.is_none_or(|at| at >= granted_after));
        let max = maxima.map(|one| one.max).max().unwrap_or(0);
        if weight_held > max {
            self.violations
                .push(format!("weight {weight_held} is held, the maximum is {max}: {:?}", self.held));
        }
    }

    /// A request that was queued before another arrived must be granted before it.
    pub(super) fn check_order(&mut self) {
        let mut queued: Vec<(u64, u64, PermitId)> = Vec::new();
        for (id, request) in &self.requests {
            if let (Some((queued_event, _)), Some(fence), false) =
                (request.queued, request.fence, request.may_have_lost_place)
            {
                queued.push((queued_event, fence, *id));
            }
        }
        queued.sort_unstable_by_key(|(queued_event, ..)| *queued_event);
        let mut arrivals: Vec<(u64, u64, PermitId)> = Vec::new();
        arrivals.extend(
            self.requests.iter().filter_map(|(id, request)| Some((request.first_event, request.fence?, *id))),
        );
        arrivals.sort_unstable_by_key(|(first_event, ..)| *first_event);
        let (mut waiting, mut latest) = (queued.iter().peekable(), None);
        for (first_event, fence, id) in arrivals {
            while let Some(before) = waiting.next_if(|(queued_event, ..)| *queued_event < first_event) {
                latest = latest.max(Some((before.1, before.2)));
            }
            if let Some((earlier_fence, overtaken)) =
                latest.filter(|(earlier_fence, _)| *earlier_fence > fence)
            {
                self.violations.push(format!("{id} ({fence}) overtook {overtaken} ({earlier_fence})"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_TTL: Duration = Duration::from_secs(2);
    const QUEUE_TTL: Duration = Duration::from_secs(5);

    fn oracle(max: u32) -> (Oracle, Instant) {
        let now = Instant::now();
        (Oracle::new(LEASE_TTL, QUEUE_TTL, max), now)
    }

    fn grant(oracle: &mut Oracle, fence: u64, now: Instant) -> PermitId {
        let id = PermitId::new();
        oracle.record_request(id, now);
        oracle.record_grant(id, fence, 1, now);
        id
    }

    #[test]
    fn one_too_many_is_seen() {
        let (mut oracle, now) = oracle(1);
        let first = grant(&mut oracle, 1, now);
        oracle.record_release(first);
        grant(&mut oracle, 2, now);
        assert_eq!(oracle.violations, [""; 0]);
        grant(&mut oracle, 3, now);
        assert_eq!(oracle.violations.len(), 1);
        grant(&mut oracle, 4, now + LEASE_TTL);
        assert_eq!(oracle.violations.len(), 1, "the other leases have expired");
    }

    #[test]
    fn what_was_given_before_the_pool_shrank_may_stay_and_nothing_more() {
        let (mut oracle, now) = oracle(2);
        let later = now + Duration::from_millis(1);
        grant(&mut oracle, 1, now);
        let slow = PermitId::new();
        oracle.record_request(slow, now);
        oracle.begin_resize(1);
        oracle.finish_resize(later);
        oracle.record_grant(slow, 2, 1, later);
        assert_eq!(oracle.violations, [""; 0], "the grant may be older than the resize");
        grant(&mut oracle, 3, later + Duration::from_millis(1));
        assert_eq!(oracle.violations.len(), 1);
    }

    #[test]
    fn one_that_overtakes_is_seen() {
        let (mut oracle, now) = oracle(9);
        let waiting = PermitId::new();
        oracle.record_request(waiting, now);
        oracle.record_wait(waiting, now);
        grant(&mut oracle, 1, now);
        oracle.record_request(waiting, now);
        oracle.record_grant(waiting, 2, 1, now);
        oracle.check_order();
        assert_eq!(oracle.violations.len(), 1);
    }

    #[test]
    fn one_whose_place_was_lost_was_not_overtaken() {
        let (mut oracle, now) = oracle(9);
        let late = PermitId::new();
        oracle.record_request(late, now);
        oracle.record_wait(late, now);
        grant(&mut oracle, 1, now);
        oracle.record_request(late, now + QUEUE_TTL);
        oracle.record_grant(late, 2, 1, now + QUEUE_TTL);
        oracle.check_order();
        assert_eq!(oracle.violations, [""; 0]);
    }

    #[test]
    fn one_that_queued_before_a_restart_that_was_heard_of_sooner_was_not_overtaken() {
        let (mut oracle, now) = oracle(9);
        let before = PermitId::new();
        oracle.record_request(before, now);
        oracle.server_epoch += 1;
        oracle.record_wait(before, now);
        grant(&mut oracle, 1, now);
        oracle.record_request(before, now);
        oracle.record_grant(before, 2, 1, now);
        oracle.check_order();
        assert_eq!(oracle.violations, [""; 0]);
    }
}
