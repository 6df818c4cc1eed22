//! How much goes to one domain: what a big provider takes for a flood is not taken at all.
//!
//! Whoever finds a domain's bucket empty stands in line: each gets a time of its own, one after the other at
//! the domain's rate, so that nobody comes in vain and the old goes before the new. What is more urgent has a
//! line of its own and does not wait behind the rest; whose turn it took stands in line with those who were
//! there before.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use longshore::ledger::bucket::{Draw, Level, draw};
use longshore::{Priority, Timestamp};

/// Messages to one domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DomainRate {
    /// How many in a minute.
    pub per_minute: f64,
    /// How many at once, after a rest.
    pub burst: f64,
}

impl DomainRate {
    fn wish(self, domain: &str) -> Draw {
        Draw {
            bucket: domain.to_owned(),
            per_minute: self.per_minute,
            capacity: self.burst.max(1.0),
            want: 1.0,
            at_least: 1.0,
        }
    }

    /// Between two messages; of a rate of almost nothing, a day.
    fn step(self) -> Duration {
        Duration::try_from_secs_f64(60.0 / self.per_minute).unwrap_or(DAY).min(DAY)
    }

    /// After so long without mail a bucket is full.
    fn rest(self) -> Duration {
        Duration::from_secs_f64((self.burst.max(1.0) * self.step().as_secs_f64()).min(86_400.0))
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// Where a message stands that has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// It is new, and waits behind what is as urgent.
    New(Priority),
    /// It has waited before, and waits behind nobody but those who did so, too.
    Back,
}

impl Line {
    fn number(self) -> usize {
        match self {
            Self::Back => 0,
            Self::New(priority) => usize::from(priority.level()),
        }
    }
}

/// What is known of the domains that mail went to lately.
#[derive(Debug, Default)]
pub(super) struct Domains {
    rate: Option<DomainRate>,
    known: HashMap<String, Domain>,
}

#[derive(Debug, Default)]
struct Domain {
    level: Option<Level>,
    /// The next free time of each line: of those who come back, then by priority.
    next: [Option<Timestamp>; 10],
}

/// Beyond so many, domains that have rested are forgotten: they are full again.
const KNOWN: usize = 10_000;

impl Domains {
    pub(super) fn new(rate: Option<DomainRate>) -> Self {
        Self { rate, ..Self::default() }
    }

    /// Until when a message to these addresses has to wait; nothing if it may go now, and then it counts for
    /// each of their domains.
    pub(super) fn wait(&mut self, to: &[&str], line: Line, now: Timestamp) -> Option<Timestamp> {
        let rate = self.rate?;
        if self.known.len() >= KNOWN {
            self.known.retain(|_, domain| domain.is_busy(rate, now));
        }
        let (mut until, mut levels) = (None, Vec::new());
        for name in to.iter().map(|to| domain(to)).collect::<BTreeSet<_>>() {
            let domain = self.known.entry(name.clone()).or_default();
            let (drawn, level) = draw(domain.level, now, &rate.wish(&name));
            if drawn.got > 0.0 && !domain.has_line_before(line, now) {
                levels.push((name, level));
            } else {
                until = until.max(Some(domain.place(line, now + drawn.wait, rate.step())));
            }
        }
        if until.is_none() {
            for (name, level) in levels {
                self.known.entry(name).or_default().level = Some(level);
            }
        }
        until
    }
}

impl Domain {
    fn has_line_before(&self, line: Line, now: Timestamp) -> bool {
        let ahead = match line {
            Line::Back => 0..0,
            Line::New(_) => 1..line.number() + 1,
        };
        self.next[ahead].iter().flatten().any(|next| *next > now)
    }

    /// A place at the end of a line. File names have milliseconds, and nobody must come too early.
    fn place(&mut self, line: Line, earliest: Timestamp, step: Duration) -> Timestamp {
        let next = &mut self.next[line.number()];
        let micros = (*next).max(Some(earliest)).unwrap_or(earliest).as_micros();
        let place = Timestamp::from_micros((micros / 1000 + 1) * 1000);
        *next = Some(place + step);
        place
    }

    fn is_busy(&self, rate: DomainRate, now: Timestamp) -> bool {
        let full = self.level.is_none_or(|level| now.since(level.at) >= rate.rest());
        !full || self.next.iter().flatten().any(|next| *next > now)
    }
}

fn domain(address: &str) -> String {
    address.rsplit('@').next().unwrap_or(address).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Line = Line::New(Priority::NORMAL);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_763_300_000_000_000 + millis * 1000)
    }

    fn domains(per_minute: f64, burst: f64) -> Domains {
        Domains::new(Some(DomainRate { per_minute, burst }))
    }

    /// Seconds to wait, from the beginning.
    fn waits(domains: &mut Domains, to: &[&str], line: Line, now: Timestamp) -> Option<u64> {
        domains.wait(to, line, now).map(|until| until.since(at(0)).as_secs())
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
        assert_eq!(Domains::new(None).wait(&["a@x.org"], NEW, at(0)), None);
    }

    #[test]
    fn a_backlog_is_put_off_once_and_goes_in_its_order_before_what_comes_later() {
        let mut domains = domains(60.0, 1.0);
        let mut line: std::collections::BTreeMap<Timestamp, u64> = Default::default();
        let mut sent = Vec::new();
        for n in 0..100 {
            match domains.wait(&["a@x.org"], NEW, at(0)) {
                None => sent.push(n),
                Some(until) => assert_eq!(line.insert(until, n), None, "each has its own time"),
            }
        }
        let mut later = 100;
        while let Some((due, n)) = line.pop_first() {
            assert_eq!(domains.wait(&["a@x.org"], Line::Back, due), None, "{n} has waited");
            sent.push(n);
            if later < 150 {
                // One more comes each time one goes.
                let until = domains.wait(&["a@x.org"], NEW, due).expect("others were first");
                assert_eq!(line.insert(until, later), None);
                later += 1;
            }
        }
        assert_eq!(sent, (0..150).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_urgent_does_not_wait_behind_a_backlog_and_whose_turn_it_took_is_not_sent_to_its_end()
    {
        let mut domains = domains(60.0, 1.0);
        let high = Line::New(Priority::HIGH);
        let backlog: Vec<_> =
            (0..50).map(|_| waits(&mut domains, &["a@x.org"], NEW, at(0))).collect();
        assert_eq!((backlog[0], backlog[49]), (None, Some(49)));
        assert_eq!(waits(&mut domains, &["a@x.org"], high, at(0)), Some(1));
        assert_eq!(waits(&mut domains, &["a@x.org"], high, at(0)), Some(2));
        assert_eq!(waits(&mut domains, &["a@x.org"], high, at(1100)), Some(3));
        assert_eq!(waits(&mut domains, &["a@x.org"], Line::Back, at(1100)), None);
        assert_eq!(waits(&mut domains, &["a@x.org"], Line::Back, at(1100)), Some(2));
        assert_eq!(waits(&mut domains, &["a@x.org"], Line::Back, at(1100)), Some(3));
    }

    #[test]
    fn a_message_counts_for_all_its_domains_or_for_none() {
        let mut domains = domains(60.0, 1.0);
        assert_eq!(waits(&mut domains, &["a@x.org", "b@x.org", "c@y.org"], NEW, at(0)), None);
        assert_eq!(waits(&mut domains, &["a@y.org"], NEW, at(0)), Some(1));
        assert_eq!(waits(&mut domains, &["a@z.org", "b@y.org"], NEW, at(0)), Some(2));
        assert_eq!(waits(&mut domains, &["a@z.org"], NEW, at(0)), None, "it went to nobody");
    }
}
