//! Runs: which units start now, their cancellation, progress and end.

use std::sync::Arc;

use longshore_core::store::ProgressNote;
use longshore_core::unit::Weight;
use longshore_core::worker_session::Lease;
use longshore_core::{Outcome, UnitId};
use tracing::Span;

use super::state::{Stage, UnitEntry};
use super::{BoxedUnit, UnitTable};
use crate::context::{CancelReason, RunControl};
use crate::handler::RunOutcome;

/// What the executor does next.
#[derive(Default)]
pub(crate) struct RunnableUnits {
    /// Units to run.
    pub(crate) run: Vec<BoxedUnit>,
    /// Units to start in the store, then run.
    pub(crate) start: Vec<BoxedUnit>,
}

impl UnitTable {
    /// Takes all units that can run or start with the free slots, and reserves the slots.
    pub(crate) fn take_runnable(&self, may_start: bool) -> RunnableUnits {
        let mut state = self.state();
        let mut next = RunnableUnits { run: state.started.drain(..).collect(), start: Vec::new() };
        while let Some(unit) = state.pop_waiting() {
            next.run.push(unit);
        }
        // Units that were started ahead are not overtaken.
        if may_start && !state.stopping && state.alone.is_none() && state.waiting.is_empty() {
            while state.start_budget() > 0
                && let Some(unit) = state.pop_startable()
            {
                next.start.push(unit);
            }
        }
        state.running += next.run.len();
        let took_any = !next.run.is_empty() || !next.start.is_empty();
        let low = took_any && state.buffered() <= state.low_watermark;
        drop(state);
        if low {
            self.claim_hint.notify_one();
        }
        next
    }

    /// Marks units of [`Self::take_runnable`] as running. Omits units with a lost lease.
    pub(crate) fn begin_runs(&self, units: Vec<BoxedUnit>) -> Vec<(BoxedUnit, Arc<RunControl>)> {
        let mut state = self.state();
        let stopping = state.stopping;
        let mut begun = Vec::with_capacity(units.len());
        for unit in units {
            let Some(entry) = state.entry(unit.lease) else {
                state.running -= 1;
                state.release_weight(&unit.unit.weight);
                continue;
            };
            let run_control = Arc::new(RunControl::default());
            if stopping {
                run_control.cancel(CancelReason::Stopping);
            }
            entry.stage = Stage::Running(Arc::clone(&run_control));
            begun.push((unit, run_control));
        }
        begun
    }

    /// Counts `units` more runs, which the store has just started.
    pub(crate) fn count_running(&self, units: usize) {
        self.state().running += units;
    }

    /// Removes units that the store did not start: their leases are lost or released.
    pub(crate) fn remove_unstarted(&self, units: &[BoxedUnit]) {
        let mut state = self.state();
        for unit in units {
            state.release_weight(&unit.unit.weight);
            state.remove(unit.lease);
        }
        drop(state);
        self.claim_hint.notify_one();
        self.recheck_idle.notify_waiters();
    }

    /// Records that a handler returned: releases its slots and queues its answer for the completer.
    /// Returns false if the lease is lost and the answer was discarded.
    pub(crate) fn complete_run(
        &self,
        lease: Lease,
        weight: &Weight,
        answer: RunOutcome,
        finish_span: Span,
    ) -> bool {
        let mut state = self.state();
        state.running -= 1;
        state.release_weight(weight);
        let heavy = std::mem::take(&mut state.heavy_waiting);
        let ours = state.complete_traced(lease, answer, finish_span);
        let (buffered, low_watermark, at_rest) = (state.buffered(), state.low_watermark, state.running == 0);
        drop(state);
        self.completions_ready.notify_one();
        if buffered > 0 {
            self.runnable.notify_one();
        }
        if buffered <= low_watermark {
            self.claim_hint.notify_one();
        }
        if heavy || buffered == 0 {
            self.slots_freed.notify_one();
        }
        if at_rest {
            self.recheck_idle.notify_waiters();
        }
        ours
    }

    /// Cancels the runs of `units` after a user cancelled the units.
    pub(crate) fn cancel_runs(&self, units: &[UnitId]) {
        let state = self.state();
        for entry in units.iter().filter_map(|unit| state.units.get(unit)) {
            if let Stage::Running(run_control) = &entry.stage {
                run_control.cancel(CancelReason::Cancelled);
            }
        }
    }

    /// Stops: cancels running handlers and interrupts units that wait to run.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        state.cancel_all(CancelReason::Stopping);
        for held in std::mem::take(&mut state.started) {
            state.release_weight(&held.unit.weight);
            state.complete(held.lease, Outcome::Interrupted.into());
        }
        for (held, _) in std::mem::take(&mut state.waiting) {
            state.complete(held.lease, Outcome::Interrupted.into());
        }
        drop(state);
        self.completions_ready.notify_one();
        self.recheck_idle.notify_waiters();
    }

    /// Gives up handlers that did not return: records their units as interrupted and ignores their
    /// later answers.
    pub(crate) fn interrupt_running(&self) {
        let mut state = self.state();
        let running = |entry: &&UnitEntry| matches!(entry.stage, Stage::Running(_));
        let leases: Vec<Lease> = state.units.values().filter(running).map(|entry| entry.lease).collect();
        for lease in leases {
            state.complete(lease, Outcome::Interrupted.into());
        }
        drop(state);
        self.completions_ready.notify_one();
    }

    /// Takes the latest progress of each run that reported any since the last call.
    pub(crate) fn take_progress(&self) -> Vec<ProgressNote> {
        let state = self.state();
        let note = |entry: &UnitEntry| {
            let Stage::Running(run_control) = &entry.stage else {
                return None;
            };
            let progress = run_control.take_progress()?;
            Some(ProgressNote { lease: entry.lease, progress })
        };
        state.units.values().filter_map(note).collect()
    }

    /// Puts back progress that did not reach the store, unless the run has reported newer progress.
    pub(crate) fn restore_progress(&self, notes: Vec<ProgressNote>) {
        let mut state = self.state();
        for note in notes {
            if let Some(UnitEntry { stage: Stage::Running(run_control), .. }) = state.entry(note.lease) {
                run_control.restore_progress(note.progress);
            }
        }
    }
}
