//! Rate limit per recipient domain: large providers reject bursts.
//!
//! When a domain's token bucket is empty, each message is postponed to a time of its own, spaced at the
//! domain's rate, so that every postponed message finds a token and older messages go first. Each priority
//! has its own sequence of times, so that urgent messages do not wait behind the backlog. If an urgent
//! message takes a postponed message's token, the latter waits only behind other postponed messages.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use longshore::accounts::token_bucket::{BucketLevel, BucketRequest, draw};
use longshore::{Priority, Timestamp};

/// The rate for messages to one domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DomainRate {
    /// Messages per minute.
    pub per_minute: f64,
    /// Messages at once when the bucket is full.
    pub burst: f64,
}

impl DomainRate {
    fn token_draw(self, domain: &str) -> BucketRequest {
        BucketRequest {
            bucket: domain.to_owned(),
            per_minute: self.per_minute,
            capacity: self.burst.max(1.0),
            amount: 1.0,
            minimum: 1.0,
        }
    }

    /// The interval between two messages, at most a day.
    fn interval(self) -> Duration {
        Duration::try_from_secs_f64(60.0 / self.per_minute).unwrap_or(DAY).min(DAY)
    }

    /// How long an unused bucket takes to fill.
    fn refill_time(self) -> Duration {
        Duration::from_secs_f64((self.burst.max(1.0) * self.interval().as_secs_f64()).min(86_400.0))
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// The order class of a message that has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitClass {
    /// A new message: waits behind messages of the same or a higher priority.
    New(Priority),
    /// A message that was postponed before: waits only behind other such messages.
    Postponed,
}

impl WaitClass {
    fn index(self) -> usize {
        match self {
            Self::Postponed => 0,
            Self::New(priority) => usize::from(priority.level()),
        }
    }
}

/// Token buckets and schedules of recently used domains.
#[derive(Debug, Default)]
pub(super) struct DomainLimiter {
    rate: Option<DomainRate>,
    domains: HashMap<String, DomainState>,
}

#[derive(Debug, Default)]
struct DomainState {
    level: Option<BucketLevel>,
    /// The next free time of each class: postponed messages first, then by priority.
    next: [Option<Timestamp>; 10],
}

/// Above this number, domains with a full bucket are dropped.
const MAX_DOMAINS: usize = 10_000;

impl DomainLimiter {
    pub(super) fn new(rate: Option<DomainRate>) -> Self {
        Self { rate, ..Self::default() }
    }

    /// Takes a token of each recipient domain. If any domain has none, takes no token, and returns the time
    /// to postpone the message to.
    pub(super) fn reserve(&mut self, to: &[&str], class: WaitClass, now: Timestamp) -> Option<Timestamp> {
        let rate = self.rate?;
        if self.domains.len() >= MAX_DOMAINS {
            self.domains.retain(|_, domain| domain.is_busy(rate, now));
        }
        let (mut until, mut levels) = (None, Vec::new());
        for name in to.iter().map(|to| domain(to)).collect::<BTreeSet<_>>() {
            let domain = self.domains.entry(name.clone()).or_default();
            let (drawn, level) = draw(domain.level, now, &rate.token_draw(&name));
            if drawn.taken > 0.0 && !domain.has_waiting_before(class, now) {
                levels.push((name, level));
            } else {
                until = until.max(Some(domain.schedule(class, now + drawn.wait, rate.interval())));
            }
        }
        if until.is_none() {
            for (name, level) in levels {
                self.domains.entry(name).or_default().level = Some(level);
            }
        }
        until
    }
}

impl DomainState {
    fn has_waiting_before(&self, class: WaitClass, now: Timestamp) -> bool {
        let ahead = match class {
            WaitClass::Postponed => 0..0,
            WaitClass::New(_) => 1..class.index() + 1,
        };
        self.next[ahead].iter().flatten().any(|next| *next > now)
    }

    /// Takes the next free time of a class. File names have millisecond precision, so the time is rounded up:
    /// a message must not come back before its token.
    fn schedule(&mut self, class: WaitClass, earliest: Timestamp, step: Duration) -> Timestamp {
        let next = &mut self.next[class.index()];
        let micros = (*next).max(Some(earliest)).unwrap_or(earliest).as_micros();
        let slot = Timestamp::from_micros((micros / 1000 + 1) * 1000);
        *next = Some(slot + step);
        slot
    }

    fn is_busy(&self, rate: DomainRate, now: Timestamp) -> bool {
        let full = self.level.is_none_or(|level| now.since(level.at) >= rate.refill_time());
        !full || self.next.iter().flatten().any(|next| *next > now)
    }
}

fn domain(address: &str) -> String {
    address.rsplit('@').next().unwrap_or(address).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: WaitClass = WaitClass::New(Priority::NORMAL);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_763_300_000_000_000 + millis * 1000)
    }

    fn domains(per_minute: f64, burst: f64) -> DomainLimiter {
        DomainLimiter::new(Some(DomainRate { per_minute, burst }))
    }

    /// Seconds from the start until the message may go.
    fn waits(domains: &mut DomainLimiter, to: &[&str], class: WaitClass, now: Timestamp) -> Option<u64> {
        domains.reserve(to, class, now).map(|until| until.since(at(0)).as_secs())
    }

    #[test]
    fn a_domain_gets_its_burst_then_its_rate_and_others_are_not_held_up() {
        let mut domains = domains(60.0, 2.0);
        let mut all = |to: &str| waits(&mut domains, &[to], NEW, at(0));
        assert_eq!(
            [all("a@x.org"), all("b@X.org"), all("c@x.org"), all("d@x.org")],
            [None, None, Some(1), Some(2)]
        );
        assert_eq!(all("a@y.org"), None);
        assert_eq!(DomainLimiter::new(None).reserve(&["a@x.org"], NEW, at(0)), None);
    }

    #[test]
    fn a_backlog_is_put_off_once_and_goes_in_its_order_before_what_comes_later() {
        let mut domains = domains(60.0, 1.0);
        let mut line: std::collections::BTreeMap<Timestamp, u64> = Default::default();
        let mut sent = Vec::new();
        for n in 0..100 {
            match domains.reserve(&["a@x.org"], NEW, at(0)) {
                None => sent.push(n),
                Some(until) => assert_eq!(line.insert(until, n), None, "each has its own time"),
            }
        }
        let mut later = 100;
        while let Some((due, n)) = line.pop_first() {
            assert_eq!(domains.reserve(&["a@x.org"], WaitClass::Postponed, due), None, "{n} has waited");
            sent.push(n);
            if later < 150 {
                // One message arrives for each one sent.
                let until = domains.reserve(&["a@x.org"], NEW, due).expect("others were first");
                assert_eq!(line.insert(until, later), None);
                later += 1;
            }
        }
        assert_eq!(sent, (0..150).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_urgent_does_not_wait_behind_a_backlog_and_whose_turn_it_took_is_not_sent_to_its_end() {
        let mut domains = domains(60.0, 1.0);
        let high = WaitClass::New(Priority::HIGH);
        let backlog: Vec<_> = (0..50).map(|_| waits(&mut domains, &["a@x.org"], NEW, at(0))).collect();
        assert_eq!((backlog[0], backlog[49]), (None, Some(49)));
        assert_eq!(waits(&mut domains, &["a@x.org"], high, at(0)), Some(1));
        assert_eq!(waits(&mut domains, &["a@x.org"], high, at(0)), Some(2));
        assert_eq!(waits(&mut domains, &["a@x.org"], high, at(1100)), Some(3));
        assert_eq!(waits(&mut domains, &["a@x.org"], WaitClass::Postponed, at(1100)), None);
        assert_eq!(waits(&mut domains, &["a@x.org"], WaitClass::Postponed, at(1100)), Some(2));
        assert_eq!(waits(&mut domains, &["a@x.org"], WaitClass::Postponed, at(1100)), Some(3));
    }

    #[test]
    fn a_message_counts_for_all_its_domains_or_for_none() {
        let mut domains = domains(60.0, 1.0);
        assert_eq!(waits(&mut domains, &["a@x.org", "b@x.org", "c@y.org"], NEW, at(0)), None);
        assert_eq!(waits(&mut domains, &["a@y.org"], NEW, at(0)), Some(1));
        assert_eq!(waits(&mut domains, &["a@z.org", "b@y.org"], NEW, at(0)), Some(2));
        assert_eq!(waits(&mut domains, &["a@z.org"], NEW, at(0)), None, "no token was taken");
    }
}
