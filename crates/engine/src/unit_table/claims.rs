//! Claims: what the fetcher may claim, and the units that a claim returned.

use std::collections::{BTreeMap, VecDeque};

use longshore_core::store::ClaimResult;
use longshore_core::worker_session::Lease;
use longshore_core::{SessionId, TenantId, UnitId};

use super::UnitTable;
use crate::prefetch::ClaimBuffer;
use crate::slot_yield::ClaimLimit;

/// What the fetcher may claim. Its slots and resources stay reserved until the claim returns.
#[derive(Debug)]
pub(crate) struct ClaimReservation {
    pub(crate) session: SessionId,
    pub(crate) free: u32,
    /// Units to start beyond the free slots.
    pub(crate) start_ahead: u32,
    pub(crate) resources: BTreeMap<String, u32>,
    pub(crate) prefetch: u32,
    pub(crate) worker_idle: bool,
    /// Tenants to skip.
    pub(crate) excluded_tenants: Vec<TenantId>,
}

impl UnitTable {
    /// How many slots may be used.
    pub(crate) fn slot_limit(&self) -> u32 {
        self.state().limit
    }

    /// Reserves slots and resources for a claim of at most `buffer` units beyond the free slots, within
    /// `limit`. `None` if nothing may be claimed now.
    pub(crate) fn reserve_claim(&self, buffer: ClaimBuffer, limit: ClaimLimit) -> Option<ClaimReservation> {
        let buffer = if limit.is_unlimited() { buffer } else { ClaimBuffer::Prefetch(0) };
        let mut state = self.state();
        // Claim again well before the buffer is empty: the rest must last until the claim returns.
        state.low_watermark = buffer.low_watermark();
        state.start_ahead = if let ClaimBuffer::StartAhead(units) = buffer { units } else { 0 };
        let session = state.session?;
        let worker_idle = state.units.is_empty() && state.running == 0;
        let start_budget = state.start_budget();
        let must_wait = state.alone.is_some() || start_budget == 0 || state.stopping;
        if must_wait || (state.drain_for_exclusive && !worker_idle) {
            return None;
        }
        // Buffered units have priority on free slots; started units already have theirs.
        let free = if state.buffered() == 0 { state.usable_slots().min(start_budget) } else { 0 };
        let free = free.min(limit.max_units);
        let may_buffer = !state.drain_for_exclusive && !state.heavy_waiting;
        let low = may_buffer && state.buffered() <= state.low_watermark;
        let (start_ahead, prefetch) = match buffer {
            ClaimBuffer::Prefetch(target) if low => (0, target.saturating_sub(state.buffered())),
            ClaimBuffer::StartAhead(target) if low && state.prefetched.is_empty() => {
                let count = (target as usize).saturating_sub(state.waiting.len());
                let count = u32::try_from(count).unwrap_or(target).min(start_budget - free);
                // A claim of few units costs nearly as much as one of many.
                (if free > 0 || count >= target / 2 { count } else { 0 }, 0)
            }
            _ => (0, 0),
        };
        if free == 0 && start_ahead == 0 && prefetch == 0 {
            return None;
        }
        state.free -= free;
        state.claiming = true;
        let resources = if free > 0 { std::mem::take(&mut state.resources) } else { BTreeMap::new() };
        let prefetch = u32::try_from(prefetch).unwrap_or(u32::MAX);
        let excluded_tenants = limit.excluded_tenants;
        Some(ClaimReservation {
            session,
            free,
            start_ahead,
            resources,
            prefetch,
            worker_idle,
            excluded_tenants,
        })
    }

    /// Reserves an empty claim, which checks whether the unit that must run alone still waits. If
    /// another worker took it, the slots need not stay free.
    pub(crate) fn reserve_probe(&self) -> Option<ClaimReservation> {
        let mut state = self.state();
        let session = state.session.filter(|_| state.drain_for_exclusive && !state.claiming)?;
        state.claiming = true;
        let resources = BTreeMap::new();
        let excluded_tenants = Vec::new();
        Some(ClaimReservation {
            session,
            free: 0,
            start_ahead: 0,
            resources,
            prefetch: 0,
            worker_idle: false,
            excluded_tenants,
        })
    }

    /// Whether slots are kept free for a unit that must run alone.
    pub(crate) fn drains_for_exclusive(&self) -> bool {
        self.state().drain_for_exclusive
    }

    /// Adds the claimed units. Returns false if the session was lost during the claim.
    pub(crate) fn add_claimed(&self, reservation: ClaimReservation, claimed: ClaimResult) -> bool {
        let mut state = self.state();
        state.release_reservation(&reservation);
        let ours = state.session == Some(reservation.session);
        if ours {
            if reservation.free + reservation.start_ahead + reservation.prefetch > 0 {
                state.heavy_waiting = claimed.heavy_waiting;
            }
            state.drain_for_exclusive = claimed.alone_waiting && !reservation.worker_idle;
            claimed.units.into_iter().for_each(|unit| state.insert(Box::new(unit)));
        }
        drop(state);
        self.runnable.notify_one();
        self.completions_ready.notify_one();
        self.recheck_idle.notify_waiters();
        ours
    }

    /// Releases the reservation of a failed claim.
    pub(crate) fn release_reservation(&self, reservation: &ClaimReservation) {
        self.state().release_reservation(reservation);
        self.recheck_idle.notify_waiters();
    }

    /// Takes all unstarted units out of the table, to be released.
    pub(crate) fn take_prefetched(&self) -> Vec<Lease> {
        self.take_prefetched_if(|_| true)
    }

    /// Takes the unstarted ones of `units` out of the table, to be released.
    pub(crate) fn take_prefetched_of(&self, units: &[UnitId]) -> Vec<Lease> {
        if units.is_empty() { Vec::new() } else { self.take_prefetched_if(|id| units.contains(&id)) }
    }

    fn take_prefetched_if(&self, wanted: impl Fn(UnitId) -> bool) -> Vec<Lease> {
        let mut state = self.state();
        let (out, keep): (VecDeque<_>, _) =
            std::mem::take(&mut state.prefetched).into_iter().partition(|held| wanted(held.unit.id));
        state.prefetched = keep;
        let leases: Vec<Lease> = out.iter().map(|held| held.lease).collect();
        leases.iter().for_each(|lease| state.remove(*lease));
        drop(state);
        self.recheck_idle.notify_waiters();
        leases
    }
}
