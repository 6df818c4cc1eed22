//! State of the unit table: slots, stages and transitions. Always accessed under the table's lock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use longshore_core::unit::Weight;
use longshore_core::worker_session::Lease;
use longshore_core::{Outcome, SessionId, UnitId};
use tokio::time::Instant;
use tracing::Span;

use super::{BoxedUnit, ClaimReservation, Completion};
use crate::context::{CancelReason, RunControl};
use crate::handler::RunOutcome;
use crate::worker::max_unrecorded_units;

pub(super) struct State {
    /// `None` while a new session is being opened.
    pub(super) session: Option<SessionId>,
    pub(super) slots: u32,
    /// How many of the slots may be used now.
    pub(super) limit: u32,
    pub(super) free: u32,
    pub(super) resources: BTreeMap<String, u32>,
    /// Total of each named resource.
    all_resources: BTreeMap<String, u32>,
    /// Always in the same order for the same history, so that a simulation can be repeated.
    pub(super) units: HashMap<UnitId, UnitEntry, FixedState>,
    /// Claimed and started, slots reserved, not yet running.
    pub(super) started: VecDeque<BoxedUnit>,
    /// Claimed and started ahead, without slots: they run as soon as slots are free. With the time
    /// of the claim's return.
    pub(super) waiting: VecDeque<(BoxedUnit, Instant)>,
    /// Claimed, not started, without slots.
    pub(super) prefetched: VecDeque<BoxedUnit>,
    pub(super) completions: VecDeque<Completion>,
    /// Handlers that have not returned, including those with a lost lease.
    pub(super) running: usize,
    pub(super) uncompleted: usize,
    pub(super) claiming: bool,
    /// The unit that must run alone, while it is held.
    pub(super) alone: Option<Lease>,
    /// Keeps slots free until the worker is idle: a waiting unit must run alone.
    pub(super) drain_for_exclusive: bool,
    /// A waiting unit needs more slots or resources than were free.
    pub(super) heavy_waiting: bool,
    pub(super) stopping: bool,
    /// The fetcher is woken when at most this many units are prefetched or started ahead.
    pub(super) low_watermark: usize,
    /// How many units may be started ahead.
    pub(super) start_ahead: u32,
}

pub(super) struct UnitEntry {
    pub(super) lease: Lease,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    Prefetched,
    Started,
    Running(Arc<RunControl>),
    Completing,
}

impl State {
    pub(super) fn new(slots: u32, resources: BTreeMap<String, u32>) -> Self {
        Self {
            session: None,
            slots,
            limit: slots,
            free: slots,
            all_resources: resources.clone(),
            resources,
            units: HashMap::default(),
            started: VecDeque::new(),
            waiting: VecDeque::new(),
            prefetched: VecDeque::new(),
            completions: VecDeque::new(),
            running: 0,
            uncompleted: 0,
            claiming: false,
            alone: None,
            drain_for_exclusive: false,
            heavy_waiting: false,
            stopping: false,
            low_watermark: 0,
            start_ahead: 0,
        }
    }

    /// How many more units may start. A started unit without a recorded outcome runs again if this
    /// process dies, and occupies memory while the store is unavailable.
    pub(super) fn start_budget(&self) -> u32 {
        let at_risk = u32::try_from(self.units.len() - self.prefetched.len()).unwrap_or(u32::MAX);
        max_unrecorded_units(self.slots.max(self.start_ahead)).saturating_sub(at_risk)
    }

    /// Free slots within the limit.
    pub(super) fn usable_slots(&self) -> u32 {
        self.limit.saturating_sub(self.slots - self.free)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.units.is_empty() && !self.claiming
    }

    pub(super) fn insert(&mut self, unit: BoxedUnit) {
        // The unit was lost, and this worker claimed it again before it heard so.
        if let Some(lost) = self.units.get(&unit.unit.id) {
            if let Stage::Running(run_control) = &lost.stage {
                run_control.cancel(CancelReason::LeaseLost);
            }
            self.remove(lost.lease);
        }
        let stage = if unit.started { Stage::Started } else { Stage::Prefetched };
        self.units.insert(unit.unit.id, UnitEntry { lease: unit.lease, stage });
        if unit.alone {
            self.alone = Some(unit.lease);
        }
        if !unit.started {
            self.prefetched.push_back(unit);
        } else if self.stopping {
            self.complete(unit.lease, Outcome::Interrupted.into());
        } else if !self.waiting.is_empty() || !self.fits(&unit.unit.weight) {
            self.waiting.push_back((unit, Instant::now()));
        } else {
            self.reserve_weight(&unit.unit.weight);
            self.started.push_back(unit);
        }
    }

    /// The first prefetched unit, if it fits. If it does not, it blocks the units behind it, or
    /// they would overtake it forever.
    pub(super) fn pop_startable(&mut self) -> Option<BoxedUnit> {
        if !self.fits(&self.prefetched.front()?.unit.weight) {
            return None;
        }
        let unit = self.prefetched.pop_front()?;
        self.reserve_weight(&unit.unit.weight);
        if let Some(entry) = self.entry(unit.lease) {
            entry.stage = Stage::Started;
        }
        Some(unit)
    }

    /// The first unit that was started ahead, if it fits. Its run starts now.
    pub(super) fn pop_waiting(&mut self) -> Option<BoxedUnit> {
        if !self.fits(&self.waiting.front()?.0.unit.weight) {
            return None;
        }
        let (mut held, since) = self.waiting.pop_front()?;
        self.reserve_weight(&held.unit.weight);
        held.unit.started_at = held.unit.started_at.map(|at| at + since.elapsed());
        Some(held)
    }

    /// Units that are held for slots to come.
    pub(super) fn buffered(&self) -> usize {
        self.prefetched.len() + self.waiting.len()
    }

    fn fits(&self, weight: &Weight) -> bool {
        weight.slots.min(self.limit) <= self.usable_slots()
            && weight.resources.iter().all(|(name, n)| self.resources.get(name) >= Some(n))
    }

    pub(super) fn reserve_weight(&mut self, weight: &Weight) {
        self.free = self.free.saturating_sub(weight.slots.min(self.slots));
        for (name, count) in &weight.resources {
            if let Some(free) = self.resources.get_mut(name) {
                *free = free.saturating_sub(*count);
            }
        }
    }

    pub(super) fn release_weight(&mut self, weight: &Weight) {
        self.free = (self.free + weight.slots.min(self.slots)).min(self.slots);
        self.release_resources(&weight.resources);
    }

    pub(super) fn release_reservation(&mut self, reservation: &ClaimReservation) {
        self.claiming = false;
        self.free = (self.free + reservation.free).min(self.slots);
        self.release_resources(&reservation.resources);
    }

    /// Releases resources, never above the total, whatever weight a unit declared.
    fn release_resources(&mut self, resources: &BTreeMap<String, u32>) {
        for (name, count) in resources {
            let Some(all) = self.all_resources.get(name) else { continue };
            let free = self.resources.entry(name.clone()).or_default();
            *free = free.saturating_add(*count).min(*all);
        }
    }

    /// Queues a held unit's answer for the completer.
    pub(super) fn complete(&mut self, lease: Lease, answer: RunOutcome) -> bool {
        self.complete_traced(lease, answer, Span::none())
    }

    /// Queues a held unit's answer with the span that closes when it is recorded. Returns false if
    /// the lease is lost or the unit is complete already.
    pub(super) fn complete_traced(&mut self, lease: Lease, answer: RunOutcome, finish_span: Span) -> bool {
        let Some(entry) = self.entry(lease) else {
            return false;
        };
        if matches!(entry.stage, Stage::Completing) {
            return false;
        }
        entry.stage = Stage::Completing;
        self.uncompleted += 1;
        let RunOutcome { outcome, commit } = answer;
        self.completions.push_back(Completion { lease, outcome, commit, is_replacement: false, finish_span });
        true
    }

    pub(super) fn entry(&mut self, lease: Lease) -> Option<&mut UnitEntry> {
        self.units.get_mut(&lease.unit).filter(|entry| entry.lease == lease)
    }

    pub(super) fn remove(&mut self, lease: Lease) {
        let Some(entry) = self.entry(lease) else {
            return;
        };
        match entry.stage {
            Stage::Completing => self.uncompleted -= 1,
            Stage::Prefetched => self.prefetched.retain(|unit| unit.lease != lease),
            Stage::Started | Stage::Running(_) => {}
        }
        self.units.remove(&lease.unit);
        if self.alone == Some(lease) {
            self.alone = None;
        }
    }

    pub(super) fn cancel_all(&self, reason: CancelReason) {
        for entry in self.units.values() {
            if let Stage::Running(run_control) = &entry.stage {
                run_control.cancel(reason);
            }
        }
    }
}
