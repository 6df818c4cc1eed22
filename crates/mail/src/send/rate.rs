//! How much goes to one domain: what a big provider takes for a flood is not taken at all.

use std::collections::HashMap;
use std::time::Duration;

use longshore::Timestamp;
use longshore::ledger::bucket::{Draw, Level, draw};

/// Messages to one domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DomainRate {
    /// How many in a minute.
    pub per_minute: f64,
    /// How many at once, after a rest.
    pub burst: f64,
}

/// What is known of the domains that mail went to lately.
#[derive(Debug, Default)]
pub(super) struct Domains {
    rate: Option<DomainRate>,
    levels: HashMap<String, Level>,
    /// Messages put off since each domain last had room.
    put_off: HashMap<String, u32>,
}

/// Beyond so many, domains that have rested are forgotten: they are full again.
const KNOWN: usize = 10_000;

impl Domains {
    pub(super) fn new(rate: Option<DomainRate>) -> Self {
        Self { rate, ..Self::default() }
    }

    /// How long a message to this address has to wait; nothing if it may go now.
    pub(super) fn wait(&mut self, address: &str, now: Timestamp) -> Option<Duration> {
        let rate = self.rate?;
        let domain = address.rsplit('@').next().unwrap_or(address).to_ascii_lowercase();
        let wish = Draw {
            bucket: domain.clone(),
            per_minute: rate.per_minute,
            capacity: rate.burst.max(1.0),
            want: 1.0,
            at_least: 1.0,
        };
        let (drawn, level) = draw(self.levels.get(&domain).copied(), now, &wish);
        if self.levels.len() >= KNOWN {
            let rested = Duration::from_secs_f64(
                (wish.capacity * 60.0 / rate.per_minute.max(0.001)).min(86_400.0),
            );
            self.levels.retain(|_, level| now.since(level.at) < rested);
        }
        self.levels.insert(domain.clone(), level);
        if drawn.got > 0.0 {
            self.put_off.remove(&domain);
            return None;
        }
        // Those that are put off together come one after the other.
        let before = self.put_off.entry(domain).or_default();
        let turn =
            Duration::try_from_secs_f64(f64::from(*before) * 60.0 / rate.per_minute.max(0.001));
        *before += 1;
        Some(drawn.wait.max(Duration::from_millis(1)) + turn.unwrap_or(drawn.wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_gets_its_burst_then_its_rate_and_others_are_not_held_up() {
        let now = Timestamp::from_micros(1_763_300_000_000_000);
        let mut domains = Domains::new(Some(DomainRate { per_minute: 60.0, burst: 2.0 }));
        let mut waits = |address: &str| domains.wait(address, now).map(|wait| wait.as_secs());
        assert_eq!(
            [waits("a@x.org"), waits("b@X.org"), waits("c@x.org"), waits("d@x.org")],
            [None, None, Some(1), Some(2)]
        );
        assert_eq!(waits("a@y.org"), None);
        assert_eq!(domains.wait("c@x.org", now + Duration::from_secs(1)), None);
        assert_eq!(Domains::new(None).wait("a@x.org", now), None);
    }
}
