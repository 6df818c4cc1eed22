//! The desk's books: slots, stages, and the moves between them. Always under the desk's lock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use longshore_core::session::Lease;
use longshore_core::unit::Weight;
use longshore_core::{Outcome, SessionId, UnitId};
use tracing::Span;

use super::{Ask, Held, Settling};
use crate::context::{CancelReason, Reins};
use crate::handler::Answer;
use crate::worker::most_at_risk;

pub(super) struct State {
    /// `None` while the session is being renewed.
    pub(super) session: Option<SessionId>,
    pub(super) slots: u32,
    /// How many of them may be used now.
    pub(super) limit: u32,
    pub(super) free: u32,
    pub(super) resources: BTreeMap<String, u32>,
    /// Named resources in all.
    all_resources: BTreeMap<String, u32>,
    pub(super) units: HashMap<UnitId, Holding>,
    /// Claimed and started, their slots taken, not yet running.
    pub(super) started: VecDeque<Held>,
    /// Claimed, not started, without slots.
    pub(super) ahead: VecDeque<Held>,
    pub(super) answers: VecDeque<Settling>,
    /// Handler runs that have not returned, those of lost leases included.
    pub(super) running: usize,
    pub(super) unsettled: usize,
    pub(super) claiming: bool,
    /// Something runs that must have nothing beside it.
    pub(super) alone: Option<Lease>,
    /// A unit waits that wants us empty-handed.
    pub(super) wants_empty: bool,
    /// A unit waits that is heavier than what was free.
    pub(super) heavy: bool,
    pub(super) stopping: bool,
    /// Intake is told when no more than this many units are buffered.
    pub(super) low_water: usize,
}

pub(super) struct Holding {
    pub(super) lease: Lease,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    Ahead,
    Started,
    Running(Arc<Reins>),
    Settling,
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
            units: HashMap::new(),
            started: VecDeque::new(),
            ahead: VecDeque::new(),
            answers: VecDeque::new(),
            running: 0,
            unsettled: 0,
            claiming: false,
            alone: None,
            wants_empty: false,
            heavy: false,
            stopping: false,
            low_water: 0,
        }
    }

    /// How many more units may be started: what has begun and is not recorded is repeated if this
    /// process dies, and held in memory while the store is away.
    pub(super) fn may_risk(&self) -> u32 {
        let at_risk = u32::try_from(self.units.len() - self.ahead.len()).unwrap_or(u32::MAX);
        most_at_risk(self.slots).saturating_sub(at_risk)
    }

    /// Slots that are free and may be used.
    pub(super) fn usable(&self) -> u32 {
        self.limit.saturating_sub(self.slots - self.free)
    }

    pub(super) fn is_clear(&self) -> bool {
        self.units.is_empty() && !self.claiming
    }

    pub(super) fn take_in(&mut self, unit: Held) {
        let stage = if unit.started { Stage::Started } else { Stage::Ahead };
        self.units.insert(unit.unit.id, Holding { lease: unit.lease, stage });
        if unit.alone {
            self.alone = Some(unit.lease);
        }
        if !unit.started {
            self.ahead.push_back(unit);
        } else if self.stopping {
            self.answer(unit.lease, Outcome::Interrupted.into());
        } else {
            self.take_weight(&unit.unit.weight);
            self.started.push_back(unit);
        }
    }

    /// The first buffered unit, if it fits. One that does not holds up those behind it, or it
    /// would be overtaken for ever.
    pub(super) fn take_startable(&mut self) -> Option<Held> {
        let weight = &self.ahead.front()?.unit.weight;
        let fits = weight.slots.min(self.limit) <= self.usable()
            && weight.resources.iter().all(|(name, n)| self.resources.get(name) >= Some(n));
        if !fits {
            return None;
        }
        let unit = self.ahead.pop_front()?;
        self.take_weight(&unit.unit.weight);
        if let Some(holding) = self.holding(unit.lease) {
            holding.stage = Stage::Started;
        }
        Some(unit)
    }

    pub(super) fn take_weight(&mut self, weight: &Weight) {
        self.free = self.free.saturating_sub(weight.slots.min(self.slots));
        for (name, count) in &weight.resources {
            if let Some(free) = self.resources.get_mut(name) {
                *free = free.saturating_sub(*count);
            }
        }
    }

    pub(super) fn free_weight(&mut self, weight: &Weight) {
        self.free = (self.free + weight.slots.min(self.slots)).min(self.slots);
        self.free_resources(&weight.resources);
    }

    pub(super) fn unreserve(&mut self, ask: &Ask) {
        self.claiming = false;
        self.free = (self.free + ask.free).min(self.slots);
        self.free_resources(&ask.resources);
    }

    /// Never more than there are, whatever a unit said that it takes up.
    fn free_resources(&mut self, resources: &BTreeMap<String, u32>) {
        for (name, count) in resources {
            let Some(all) = self.all_resources.get(name) else { continue };
            let free = self.resources.entry(name.clone()).or_default();
            *free = free.saturating_add(*count).min(*all);
        }
    }

    /// Turns a held unit's run into an answer for the settler.
    pub(super) fn answer(&mut self, lease: Lease, answer: Answer) -> bool {
        self.answer_traced(lease, answer, Span::none())
    }

    /// The same, with the span that lasts until it is recorded.
    pub(super) fn answer_traced(&mut self, lease: Lease, answer: Answer, finishing: Span) -> bool {
        let Some(holding) = self.holding(lease) else {
            return false;
        };
        if matches!(holding.stage, Stage::Settling) {
            return false;
        }
        holding.stage = Stage::Settling;
        self.unsettled += 1;
        let Answer { outcome, commit } = answer;
        self.answers.push_back(Settling { lease, outcome, commit, replaced: false, finishing });
        true
    }

    pub(super) fn holding(&mut self, lease: Lease) -> Option<&mut Holding> {
        self.units.get_mut(&lease.unit).filter(|holding| holding.lease == lease)
    }

    pub(super) fn forget(&mut self, lease: Lease) {
        let Some(holding) = self.holding(lease) else {
            return;
        };
        let unsettled = matches!(holding.stage, Stage::Settling);
        self.units.remove(&lease.unit);
        self.unsettled -= usize::from(unsettled);
        if self.alone == Some(lease) {
            self.alone = None;
        }
    }

    pub(super) fn pull_all(&self, reason: CancelReason) {
        for holding in self.units.values() {
            if let Stage::Running(reins) = &holding.stage {
                reins.pull(reason);
            }
        }
    }
}
