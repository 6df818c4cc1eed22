//! Where to begin looking for ready units when looking from the beginning has become dear.
//!
//! A unit that was claimed leaves its entry in the index of ready units until the table is vacuumed,
//! and the entry counts as a unit to look at until nobody can see it as ready any more. At full
//! speed a claim soon walks over a hundred thousand of them before the first that counts, and under
//! a long-running reader (a backup, a report) they are not even cleared away. So this process
//! measures what looking from the beginning costs, and while it is dear it remembers where it found
//! the last units of each stream and begins there. What appears before that place (a unit
//! given back, one of a higher priority, the first of a stream that had none) is found when it looks
//! from the beginning again: after a multiple of what that costs, or when it finds nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{ClaimFilterHash, MAX_REMEMBERED};

/// Below this a claim always looks from the beginning.
const CHEAP_SCAN: Duration = Duration::from_millis(1);
/// Looking from the beginning takes at most this part of the time.
const FULL_SCAN_SPACING: u32 = 20;
/// Units this process has taken before it may take a slow answer for a dear one. Fewer cannot have
/// left much behind: the machine was busy.
const MIN_CLAIMED_UNITS: usize = 2_000;

/// Where a claim looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScanMode {
    /// Everywhere, from the beginning.
    Full,
    /// In these streams, from where the last units were found.
    Resume(Vec<i64>),
}

/// What this process knows of where ready units are.
#[derive(Debug, Default)]
pub(crate) struct ScanStarts(Mutex<ScanHistory>);

#[derive(Debug, Default)]
struct ScanHistory {
    scans: HashMap<ClaimFilterHash, FullScan>,
    /// The place before which nothing was left, by stream.
    starts: HashMap<i64, i64>,
    claimed_units: usize,
}

/// The last look from the beginning.
#[derive(Debug)]
struct FullScan {
    streams: Vec<i64>,
    cost: Duration,
    /// What the look before it cost: one slow answer says nothing.
    previous_cost: Duration,
    at: Instant,
}

impl ScanStarts {
    fn with<T>(&self, change: impl FnOnce(&mut ScanHistory) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where a claim of this shape is to look at `now`.
    pub(crate) fn mode(&self, filter: ClaimFilterHash, now: Instant) -> ScanMode {
        self.with(|history| {
            let expensive = |last: &&FullScan| last.cost.min(last.previous_cost) >= CHEAP_SCAN;
            let recent =
                |last: &&FullScan| now.duration_since(last.at) < last.cost * FULL_SCAN_SPACING;
            match history.scans.get(&filter).filter(expensive).filter(recent) {
                Some(last) if history.claimed_units >= MIN_CLAIMED_UNITS => {
                    ScanMode::Resume(last.streams.clone())
                }
                _ => ScanMode::Full,
            }
        })
    }

    /// Remembers a look from the beginning: what it cost the server, and the streams it found.
    pub(crate) fn record_full_scan(
        &self,
        filter: ClaimFilterHash,
        cost: Duration,
        streams: Vec<i64>,
        now: Instant,
    ) {
        self.with(|history| {
            if history.scans.len() > MAX_REMEMBERED || history.starts.len() > MAX_REMEMBERED {
                history.scans.clear();
                history.starts.clear();
            }
            let previous_cost = history.scans.get(&filter).map_or(Duration::ZERO, |last| last.cost);
            history.scans.insert(filter, FullScan { streams, cost, previous_cost, at: now });
        });
    }

    /// The place to begin at in a stream.
    pub(crate) fn start(&self, mode: &ScanMode, stream: i64) -> i64 {
        match mode {
            ScanMode::Full => i64::MIN,
            ScanMode::Resume(_) => {
                self.with(|history| history.starts.get(&stream).copied().unwrap_or(i64::MIN))
            }
        }
    }

    /// Remembers how many units a claim took, and the place in each stream before which it left
    /// nothing.
    pub(crate) fn record_claim(
        &self,
        mode: &ScanMode,
        starts: impl Iterator<Item = (i64, i64)>,
        units: usize,
    ) {
        self.with(|history| {
            history.claimed_units = history.claimed_units.saturating_add(units);
            for (stream, last) in starts {
                let start = history.starts.entry(stream).or_insert(last);
                *start = if *mode == ScanMode::Full { last } else { last.max(*start) };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILTER: ClaimFilterHash = ClaimFilterHash(7);
    const EXPENSIVE: Duration = Duration::from_millis(10);

    fn busy() -> ScanStarts {
        let scan_starts = ScanStarts::default();
        scan_starts.record_claim(&ScanMode::Full, [(1, 50)].into_iter(), MIN_CLAIMED_UNITS);
        scan_starts
    }

    #[test]
    fn a_dear_look_is_not_repeated_at_once() {
        let (scan_starts, now) = (busy(), Instant::now());
        scan_starts.record_full_scan(FILTER, EXPENSIVE, vec![1], now);
        assert_eq!(scan_starts.mode(FILTER, now), ScanMode::Full, "once may be chance");
        scan_starts.record_full_scan(FILTER, EXPENSIVE, vec![1], now);
        let history = ScanMode::Resume(vec![1]);
        assert_eq!(scan_starts.mode(FILTER, now + EXPENSIVE), history);
        assert_eq!(
            (scan_starts.start(&history, 1), scan_starts.start(&history, 2)),
            (50, i64::MIN)
        );
        assert_eq!(scan_starts.mode(FILTER, now + EXPENSIVE * FULL_SCAN_SPACING), ScanMode::Full);
        assert_eq!(
            scan_starts.mode(ClaimFilterHash(8), now),
            ScanMode::Full,
            "of another claim nothing is known"
        );
    }

    #[test]
    fn a_cheap_look_always_begins_at_the_beginning() {
        let (scan_starts, now) = (busy(), Instant::now());
        for cost in [EXPENSIVE, CHEAP_SCAN / 2] {
            scan_starts.record_full_scan(FILTER, cost, vec![1], now);
        }
        assert_eq!(scan_starts.mode(FILTER, now), ScanMode::Full);
    }

    #[test]
    fn who_has_hardly_taken_anything_does_not_call_a_slow_answer_dear() {
        let (scan_starts, now) = (ScanStarts::default(), Instant::now());
        for _ in 0..3 {
            scan_starts.record_full_scan(FILTER, EXPENSIVE, vec![1], now);
        }
        assert_eq!(scan_starts.mode(FILTER, now), ScanMode::Full);
    }

    #[test]
    fn a_floor_sinks_only_when_all_was_looked_at() {
        let scan_starts = busy();
        let history = ScanMode::Resume(vec![1]);
        scan_starts.record_claim(&history, [(1, 40)].into_iter(), 1);
        assert_eq!(scan_starts.start(&history, 1), 50);
        scan_starts.record_claim(&ScanMode::Full, [(1, 40)].into_iter(), 1);
        assert_eq!(scan_starts.start(&history, 1), 40);
    }
}
