//! Which units a claim takes: one decision for all stores.
//!
//! A store finds candidates in the order of [`crate::stride_scheduler`], passes each to a [`ClaimBudget`], and
//! writes what the returned [`FitDecision`] says. The budget shrinks with each unit that it admits.

use std::collections::BTreeMap;

use crate::retry::OnLost;
use crate::sql_encoding::{UnitAttributes, flag};
use crate::store::{ClaimRequest, ClaimResult, Queues};
use crate::time::Timestamp;
use crate::unit::{ConcurrencyCap, Unit};

/// What a claim must check of a unit that is not plain.
#[derive(Debug, Clone, Copy)]
pub struct UnitNeeds<'u> {
    /// How many slots it needs.
    pub slots: u32,
    /// The named resources it needs.
    pub resources: &'u BTreeMap<String, u32>,
    /// Its cap.
    pub cap: Option<&'u ConcurrencyCap>,
    /// No run starts after this.
    pub deadline: Option<Timestamp>,
    /// It fails if its worker dies after its start, so it is not started before a slot is free.
    pub fails_if_lost: bool,
}

/// What to do with a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FitDecision {
    /// Lease and start it.
    Start,
    /// Lease it without starting it.
    Prefetch,
    /// Leave it and go on.
    Skip,
    /// Fail it: its deadline has passed.
    Expire,
    /// Leave it until a unit with its cap key ends: the cap is reached.
    Park,
    /// Leave it and take nothing more from its lane.
    LeaveLane,
    /// Leave it and take nothing after it.
    Stop,
}

/// The remaining capacity of a claim, and what it has taken.
#[derive(Debug)]
pub struct ClaimBudget<'c> {
    claim: &'c ClaimRequest,
    free: u32,
    ahead: u32,
    resources: BTreeMap<&'c str, u32>,
    /// The result so far. The store adds the units.
    pub claimed: ClaimResult,
}

impl<'c> ClaimBudget<'c> {
    /// The whole budget of a claim.
    pub fn new(claim: &'c ClaimRequest) -> Self {
        let resources = claim.resources.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let (free, ahead, claimed) = (claim.free_slots, claim.prefetch, ClaimResult::default());
        Self { claim, free, ahead, resources, claimed }
    }

    /// Free slots.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Slots that are free now. Units that are started ahead take what is beyond them.
    fn free_now(&self) -> u32 {
        self.free.saturating_sub(self.claim.start_ahead)
    }

    /// How many more units of one slot fit.
    pub fn remaining(&self) -> u64 {
        u64::from(self.free) + u64::from(self.ahead)
    }

    /// Decides on a plain unit: one slot, no resources, cap or deadline. Nothing is taken ahead from
    /// a lane that has a cap, or that belongs to a tenant with one.
    pub fn admit_plain(&mut self, lane_capped: bool) -> FitDecision {
        if lane_capped && self.free_now() == 0 {
            return FitDecision::LeaveLane;
        }
        if self.free > 0 {
            self.free -= 1;
            return FitDecision::Start;
        }
        if self.ahead == 0 {
            return FitDecision::LeaveLane;
        }
        self.ahead -= 1;
        FitDecision::Prefetch
    }

    /// Counts a plain unit that the store took by itself.
    pub fn record_plain(&mut self, started: bool) {
        let left = if started { &mut self.free } else { &mut self.ahead };
        *left = left.saturating_sub(1);
    }

    /// Decides on any unit. `leased_with_key` is called only for a unit with a cap that would fit
    /// the worker, and returns how many units with its key are leased; `None` if another
    /// transaction is changing that.
    pub fn admit<E>(
        &mut self,
        unit: &UnitNeeds<'_>,
        lane_capped: bool,
        now: Timestamp,
        leased_with_key: impl FnOnce() -> Result<Option<u32>, E>,
    ) -> Result<FitDecision, E> {
        if let Some(reason) = self.rejects(unit, now, leased_with_key)? {
            return Ok(reason);
        }
        if !self.fits_now(unit) {
            return Ok(self.defer_or_reserve(unit, lane_capped));
        }
        self.free -= unit.slots;
        for (name, amount) in unit.resources {
            if let Some(left) = self.resources.get_mut(name.as_str()) {
                *left -= amount;
            }
        }
        Ok(FitDecision::Start)
    }

    /// Decides on a unit that must run alone. [`FitDecision::Start`] ends the claim. A worker that
    /// holds units is only told that one waits: [`FitDecision::Stop`] ends the search for such
    /// units, not the claim. Stores ask this before they take any other unit; else other units
    /// would always run beside it.
    pub fn admit_alone<E>(
        &mut self,
        unit: &UnitNeeds<'_>,
        now: Timestamp,
        leased_with_key: impl FnOnce() -> Result<Option<u32>, E>,
    ) -> Result<FitDecision, E> {
        match self.rejects(unit, now, leased_with_key)? {
            Some(FitDecision::Expire) => return Ok(FitDecision::Expire),
            Some(_) => return Ok(FitDecision::Skip),
            None => {}
        }
        if self.claim.holds_nothing && self.fits_now(unit) {
            return Ok(FitDecision::Start);
        }
        self.claimed.alone_waiting = true;
        Ok(FitDecision::Stop)
    }

    /// Why the worker may not take a unit even if all its slots were free.
    fn rejects<E>(
        &self,
        unit: &UnitNeeds<'_>,
        now: Timestamp,
        leased_with_key: impl FnOnce() -> Result<Option<u32>, E>,
    ) -> Result<Option<FitDecision>, E> {
        if unit.deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(Some(FitDecision::Expire));
        }
        let all = &self.claim.total_resources;
        let has = |(name, amount): (&String, &u32)| all.get(name) >= Some(amount);
        if unit.slots > self.claim.slots || !unit.resources.iter().all(has) {
            return Ok(Some(FitDecision::Skip));
        }
        let Some(cap) = unit.cap else { return Ok(None) };
        Ok(match leased_with_key()? {
            None => Some(FitDecision::Skip),
            Some(leased) if leased >= cap.limit => Some(FitDecision::Park),
            Some(_) => None,
        })
    }

    fn fits_now(&self, unit: &UnitNeeds<'_>) -> bool {
        unit.slots <= self.free_now() && self.has_free_resources(unit)
    }

    fn has_free_resources(&self, unit: &UnitNeeds<'_>) -> bool {
        unit.resources.iter().all(|(name, n)| self.resources.get(name.as_str()) >= Some(n))
    }

    /// Decides on a unit that does not fit now. If only a slot is missing, a unit of one slot may be
    /// taken ahead, unless it has a cap or needs resources. For a heavier unit, or one that waits for
    /// a resource, the claim stops and keeps slots and resources free; else other units would
    /// overtake it for ever. So it does for a unit with a cap or resources if the worker had no slot
    /// to begin with: a worker that keeps its buffer filled claims only without free slots.
    fn defer_or_reserve(&mut self, unit: &UnitNeeds<'_>, lane_capped: bool) -> FitDecision {
        if unit.slots > 1 || self.free_now() > 0 || !self.has_free_resources(unit) {
            self.claimed.heavy_waiting = true;
            return FitDecision::Stop;
        }
        let starts_ahead = unit.fails_if_lost && self.claim.start_ahead > 0;
        match unit.cap.is_none() && unit.resources.is_empty() && !starts_ahead {
            true => self.admit_plain(lane_capped),
            false if self.claim.free_slots > self.claim.start_ahead => FitDecision::Skip,
            false => {
                self.claimed.heavy_waiting = true;
                FitDecision::Stop
            }
        }
    }
}

impl<'u> UnitNeeds<'u> {
    /// The needs of a unit from its columns.
    pub fn from_columns(spec: &'u UnitAttributes, deadline: Option<i64>, flags: i64) -> Self {
        Self {
            slots: spec.slots.unwrap_or(1),
            resources: &spec.resources,
            cap: spec.cap.as_ref(),
            deadline: deadline.map(Timestamp::from_micros),
            fails_if_lost: flags & flag::FAILS_IF_LOST != 0,
        }
    }
}

impl<'u> From<&'u Unit> for UnitNeeds<'u> {
    fn from(unit: &'u Unit) -> Self {
        let (cap, deadline) = (unit.cap.as_ref(), unit.deadline);
        let fails_if_lost = unit.policy.as_ref().is_some_and(|policy| policy.on_lost == OnLost::Fail);
        Self { slots: unit.weight.slots, resources: &unit.weight.resources, cap, deadline, fails_if_lost }
    }
}

impl ClaimRequest {
    /// Whether it may take from a tenant's lane of a queue.
    pub fn covers_lane(&self, queue: &str, tenant: &str) -> bool {
        let named = match &self.queues {
            Queues::All => true,
            Queues::Named(names) => names.iter().any(|name| name.as_str() == queue),
        };
        let in_scope = self.scope.tenant().is_none_or(|own| own.as_str() == tenant);
        named && in_scope && self.excluded_tenants.iter().all(|other| other.as_str() != tenant)
    }

    /// Whether it may take units of this batch, or of none.
    pub fn covers_batch(&self, batch: Option<&str>) -> bool {
        self.batch.as_ref().is_none_or(|wanted| Some(self.scope.batch_id(wanted).as_str()) == batch)
    }
}
