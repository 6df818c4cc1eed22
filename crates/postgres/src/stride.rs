//! The stride schedule of this process, and where its scans start.
//!
//! A claim is charged when it is planned, and refunded for units that it could not take. So of
//! several concurrent claims each starts where the previous one will end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use longshore_core::Timestamp;
use longshore_core::stride_scheduler::{self, ClaimFilterHash};

mod scan_start;

pub(crate) use scan_start::{ScanMode, ScanStarts, ScannedStream};

/// Claim filters remembered at most.
const MAX_REMEMBERED: usize = 10_000;

/// The stride passes of tenants and lanes, and where scans start.
#[derive(Debug, Default)]
pub(crate) struct StrideState {
    /// By lane number.
    passes: Mutex<stride_scheduler::StrideState<i64>>,
    /// Filters with a last claim that could not use the fast path.
    full_claims: Mutex<HashSet<ClaimFilterHash>>,
    pub(crate) scan_starts: ScanStarts,
    pub(crate) fences: FenceSequence,
}

/// The fences of lease groups. Each is used once by this store, and is larger than any that was lost in a crash of
/// the server, because it is at least the time. If another store claims for the same session with one of them, the
/// server rejects the second claim, which is repeated with other fences.
#[derive(Debug, Default)]
pub(crate) struct FenceSequence(AtomicI64);

impl FenceSequence {
    /// Reserves as many fences as a claim of `units` can need, and returns the first.
    pub(crate) fn reserve(&self, now: Timestamp, units: i64) -> i64 {
        let next = |last: i64| last.max(now.as_micros()).saturating_add(units.max(1));
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.unwrap_or_default().max(now.as_micros()) + 1
    }
}

impl StrideState {
    /// Reads or moves passes, under the lock.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut stride_scheduler::StrideState<i64>) -> T) -> T {
        change(&mut self.passes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_full_claims<T>(&self, change: impl FnOnce(&mut HashSet<ClaimFilterHash>) -> T) -> T {
        change(&mut self.full_claims.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records whether a claim found more than one stream of plain units.
    pub(crate) fn set_needs_full_claim(&self, filter: ClaimFilterHash, needed: bool) {
        self.with_full_claims(|filters| {
            if filters.len() > MAX_REMEMBERED {
                filters.clear();
            }
            match needed {
                true => filters.insert(filter),
                false => filters.remove(&filter),
            }
        });
    }

    /// Whether the last claim with this filter needed the full claim.
    pub(crate) fn needs_full_claim(&self, filter: ClaimFilterHash) -> bool {
        self.with_full_claims(|filters| filters.contains(&filter))
    }
}
