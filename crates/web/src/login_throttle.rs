//! Limits wrong tokens per address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore::Timestamp;

/// How long wrong tokens are counted.
pub(crate) const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses with counted failures.
const MAX_TRACKED_ADDRESSES: usize = 10_000;
/// Number of addresses that are evicted at once when there are too many.
const EVICTED_AT_ONCE: usize = MAX_TRACKED_ADDRESSES / 10;

/// Counts wrong tokens by address.
#[derive(Default)]
pub(crate) struct LoginThrottle(Mutex<HashMap<IpAddr, FailedAttempts>>);

#[derive(Clone, Copy)]
struct FailedAttempts {
    since: Timestamp,
    count: u32,
}

impl LoginThrottle {
    /// Counts a wrong token; returns how many came from this address within the window.
    pub(crate) fn record(&self, from: IpAddr, now: Timestamp) -> u32 {
        let from = rate_limit_key(from);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_TRACKED_ADDRESSES && !all.contains_key(&from) {
            evict(&mut all, now);
        }
        let failures = all.entry(from).or_insert(FailedAttempts { since: now, count: 0 });
        if now.since(failures.since) >= FAILURE_WINDOW {
            *failures = FailedAttempts { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        failures.count
    }
}

/// Evicts expired counts, or else the addresses with the fewest failures, oldest first. So a client with many
/// addresses cannot reset the count of an address that is already limited.
fn evict(all: &mut HashMap<IpAddr, FailedAttempts>, now: Timestamp) {
    all.retain(|_, failures| now.since(failures.since) < FAILURE_WINDOW);
    if all.len() < MAX_TRACKED_ADDRESSES {
        return;
    }
    let mut order: Vec<_> = all.iter().map(|(from, failed)| (failed.count, failed.since, *from)).collect();
    order.select_nth_unstable(EVICTED_AT_ONCE);
    for (_, _, from) in &order[..EVICTED_AT_ONCE] {
        all.remove(from);
    }
}

/// The key for counting failures: an IPv6 client usually has a /64 network.
fn rate_limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6((u128::from(six) & !u128::from(u64::MAX)).into()),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_new_addresses_do_not_reset_the_count_of_another() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_micros(1));
        let attacker = IpAddr::from([10, 0, 0, 1]);
        for count in 1..=30 {
            assert_eq!(throttle.record(attacker, now), count);
        }
        for number in 0..2 * MAX_TRACKED_ADDRESSES as u32 {
            throttle.record(IpAddr::from((0x2000_0000 + number).to_be_bytes()), now);
        }
        assert_eq!(throttle.record(attacker, now), 31);
        assert!(throttle.0.lock().unwrap().len() <= MAX_TRACKED_ADDRESSES);
        assert_eq!(throttle.record(attacker, now + FAILURE_WINDOW), 1, "the window is over");
    }

    #[test]
    fn all_addresses_of_one_network_are_counted_together() {
        let key = |text: &str| rate_limit_key(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
    }
}
