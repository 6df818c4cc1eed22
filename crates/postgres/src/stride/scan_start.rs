//! Where a claim's scan for ready units starts when a full scan has become expensive.
//!
//! A claimed unit leaves its entry in the index of ready units until the table is vacuumed, and
//! scans visit the entry as long as any transaction may still see the unit as ready. At full speed
//! a claim soon walks over a hundred thousand such entries before the first live one, and under a
//! long-running reader (a backup, a report) vacuum cannot remove them. So this process measures the
//! cost of full scans. While they are expensive, it remembers where it found the last units of each
//! stream and resumes there. Units that appear before that place (a released unit, one of higher
//! priority, the first of an empty stream) are found by the next full scan, which runs after a
//! multiple of its cost, or when a resumed scan finds nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore_core::TenantId;
use longshore_core::stride_scheduler::ClaimFilterHash;

use super::MAX_REMEMBERED;

/// Below this cost every claim scans fully.
const CHEAP_SCAN: Duration = Duration::from_micros(500);
/// A full scan runs at most once in this many times its own cost.
const FULL_SCAN_SPACING: u32 = 20;
/// Units that this process must have claimed before it takes a slow scan for an expensive one.
/// Fewer leave few dead entries: the machine was busy.
const MIN_CLAIMED_UNITS: usize = 2_000;

/// How a claim scans for ready units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScanMode {
    /// All streams from their beginning.
    Full,
    /// These streams, each from its remembered start.
    Resume(Vec<i64>),
}

/// What this process remembers of earlier scans.
#[derive(Debug, Default)]
pub(crate) struct ScanStarts(Mutex<ScanHistory>);

#[derive(Debug, Default)]
struct ScanHistory {
    scans: HashMap<ClaimFilterHash, FullScan>,
    /// The place before which no units were left, by stream.
    starts: HashMap<i64, i64>,
    claimed_units: usize,
}

/// A stream with ready units, as a full scan found it.
#[derive(Debug, Clone)]
pub(crate) struct ScannedStream {
    pub(crate) num: i64,
    pub(crate) lane: i64,
    pub(crate) weight: u32,
    pub(crate) tenant: TenantId,
    pub(crate) tenant_weight: u32,
    /// The rank of its first unit.
    pub(crate) rank: i64,
}

/// The last full scan of a filter.
#[derive(Debug)]
struct FullScan {
    /// Without the streams that a resumed scan found empty.
    streams: Arc<Vec<ScannedStream>>,
    cost: Duration,
    /// The cost of the full scan before it: one slow scan proves nothing.
    previous_cost: Duration,
    at: Instant,
}

impl ScanStarts {
    fn with<T>(&self, change: impl FnOnce(&mut ScanHistory) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How a claim with this filter scans at `now`.
    pub(crate) fn mode(&self, filter: ClaimFilterHash, now: Instant) -> ScanMode {
        self.with(|history| {
            let expensive = |last: &&FullScan| last.cost.min(last.previous_cost) >= CHEAP_SCAN;
            let recent = |last: &&FullScan| now.duration_since(last.at) < last.cost * FULL_SCAN_SPACING;
            match history.scans.get(&filter).filter(expensive).filter(recent) {
                Some(last) if history.claimed_units >= MIN_CLAIMED_UNITS => {
                    ScanMode::Resume(last.streams.iter().map(|stream| stream.num).collect())
                }
                _ => ScanMode::Full,
            }
        })
    }

    /// The streams that the last full scan of a filter found.
    pub(crate) fn scanned(&self, filter: ClaimFilterHash) -> Arc<Vec<ScannedStream>> {
        self.with(|history| {
            history.scans.get(&filter).map(|last| Arc::clone(&last.streams)).unwrap_or_default()
        })
    }

    /// Leaves out streams that a resumed scan found empty, until the next full scan.
    pub(crate) fn forget(&self, filter: ClaimFilterHash, empty: &HashSet<i64>) {
        if empty.is_empty() {
            return;
        }
        self.with(|history| {
            if let Some(last) = history.scans.get_mut(&filter) {
                Arc::make_mut(&mut last.streams).retain(|stream| !empty.contains(&stream.num));
            }
        });
    }

    /// Records a full scan: its cost on the server, and the streams it found.
    pub(crate) fn record_full_scan(
        &self,
        filter: ClaimFilterHash,
        cost: Duration,
        streams: Vec<ScannedStream>,
        now: Instant,
    ) {
        self.with(|history| {
            if history.scans.len() > MAX_REMEMBERED || history.starts.len() > MAX_REMEMBERED {
                history.scans.clear();
                history.starts.clear();
            }
            let previous_cost = history.scans.get(&filter).map_or(Duration::ZERO, |last| last.cost);
            let streams = Arc::new(streams);
            history.scans.insert(filter, FullScan { streams, cost, previous_cost, at: now });
        });
    }

    /// The place where the scan of a stream starts.
    pub(crate) fn start(&self, mode: &ScanMode, stream: i64) -> i64 {
        match mode {
            ScanMode::Full => i64::MIN,
            ScanMode::Resume(_) => {
                self.with(|history| history.starts.get(&stream).copied().unwrap_or(i64::MIN))
            }
        }
    }

    /// Records how many units a claim took, and the place in each stream before which it left none.
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
    use longshore_core::store::ClaimRequest;
    use longshore_core::{Kind, SessionId};

    use super::*;

    const EXPENSIVE: Duration = Duration::from_millis(10);

    fn filter(kind: &str) -> ClaimFilterHash {
        ClaimFilterHash::of(&ClaimRequest::new(SessionId::new(), vec![Kind::new(kind).unwrap()], 1))
    }

    fn stream(num: i64) -> ScannedStream {
        let tenant = TenantId::new("a").unwrap();
        ScannedStream { num, lane: 1, weight: 1, tenant, tenant_weight: 1, rank: 0 }
    }

    fn busy() -> ScanStarts {
        let scan_starts = ScanStarts::default();
        scan_starts.record_claim(&ScanMode::Full, [(1, 50)].into_iter(), MIN_CLAIMED_UNITS);
        scan_starts
    }

    #[test]
    fn a_dear_look_is_not_repeated_at_once() {
        let (scan_starts, now) = (busy(), Instant::now());
        scan_starts.record_full_scan(filter("one"), EXPENSIVE, vec![stream(1)], now);
        assert_eq!(scan_starts.mode(filter("one"), now), ScanMode::Full, "one slow scan proves nothing");
        scan_starts.record_full_scan(filter("one"), EXPENSIVE, vec![stream(1)], now);
        let history = ScanMode::Resume(vec![1]);
        assert_eq!(scan_starts.mode(filter("one"), now + EXPENSIVE), history);
        assert_eq!((scan_starts.start(&history, 1), scan_starts.start(&history, 2)), (50, i64::MIN));
        assert_eq!(scan_starts.mode(filter("one"), now + EXPENSIVE * FULL_SCAN_SPACING), ScanMode::Full);
        assert_eq!(scan_starts.mode(filter("other"), now), ScanMode::Full, "another filter has no history");
    }

    #[test]
    fn a_cheap_look_always_begins_at_the_beginning() {
        let (scan_starts, now) = (busy(), Instant::now());
        for cost in [EXPENSIVE, CHEAP_SCAN / 2] {
            scan_starts.record_full_scan(filter("one"), cost, vec![stream(1)], now);
        }
        assert_eq!(scan_starts.mode(filter("one"), now), ScanMode::Full);
    }

    #[test]
    fn who_has_hardly_taken_anything_does_not_call_a_slow_answer_dear() {
        let (scan_starts, now) = (ScanStarts::default(), Instant::now());
        for _ in 0..3 {
            scan_starts.record_full_scan(filter("one"), EXPENSIVE, vec![stream(1)], now);
        }
        assert_eq!(scan_starts.mode(filter("one"), now), ScanMode::Full);
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
