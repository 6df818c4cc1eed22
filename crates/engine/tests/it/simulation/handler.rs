//! The handler of simulated units, and the log of its runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::{Context, Handler, HandlerResult, Payload, UnitId, Verdict};
use serde::{Deserialize, Serialize};

use super::trace::Trace;

/// What a unit does.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SimTask {
    pub(super) n: u64,
    /// Virtual milliseconds.
    pub(super) ms: u64,
    pub(super) ending: SimEnding,
}

/// How the first attempt ends; the next one succeeds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum SimEnding {
    Done,
    Retry,
    Panic,
    Snooze,
    Checkpoint,
}

/// Which run's result a unit has.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SimResult {
    pub(super) fence: u64,
}

/// Every run of every unit.
pub(super) struct SimLog {
    inner: Mutex<SimLogInner>,
    pub(super) trace: Trace,
}

#[derive(Default)]
struct SimLogInner {
    fences: HashMap<UnitId, Vec<u64>>,
    broken: Option<String>,
}

impl SimLog {
    pub(super) fn new() -> Self {
        Self { inner: Mutex::default(), trace: Trace::new() }
    }

    /// `one_holder`: each run has a fence of its own. It may be smaller than that of an earlier run: the reply to a
    /// claim can arrive after the unit was taken away.
    fn begin(&self, unit: UnitId, n: u64, fence: u64) {
        self.trace.record(&(n, fence));
        let mut inner = self.inner.lock().unwrap();
        let fences = inner.fences.entry(unit).or_default();
        let is_repeated = fences.contains(&fence);
        fences.push(fence);
        if is_repeated {
            inner.broken = Some(format!("one_holder: unit {n} runs twice with fence {fence}"));
        }
    }

    fn runs_of(&self, unit: UnitId) -> usize {
        self.inner.lock().unwrap().fences.get(&unit).map_or(0, Vec::len)
    }

    pub(super) fn runs(&self) -> u64 {
        self.inner.lock().unwrap().fences.values().map(|fences| fences.len() as u64).sum()
    }

    pub(super) fn largest_fence(&self, unit: UnitId) -> Option<u64> {
        self.inner.lock().unwrap().fences.get(&unit)?.iter().max().copied()
    }

    pub(super) fn broken(&self) -> Option<String> {
        self.inner.lock().unwrap().broken.clone()
    }
}

pub(super) struct SimHandler(pub(super) Arc<SimLog>);

impl Handler for SimHandler {
    type Input = SimTask;
    type Output = SimResult;

    async fn run(&self, context: Context, task: SimTask) -> HandlerResult<SimResult> {
        let unit = context.unit();
        self.0.begin(unit.id, task.n, unit.fence);
        tokio::time::sleep(Duration::from_millis(task.ms)).await;
        let first = context.attempt() == 1 && context.checkpoint().is_none();
        match task.ending {
            SimEnding::Retry if first => return Err(Verdict::retry("once", "fails once")),
            // Unlike `panic!`, prints nothing.
            SimEnding::Panic if first => std::panic::resume_unwind(Box::new("a simulated panic")),
            SimEnding::Snooze if first && self.0.runs_of(unit.id) == 1 => {
                return Err(Verdict::Snooze(Duration::from_millis(700)));
            }
            SimEnding::Checkpoint if first => {
                // The worker may have lost the unit meanwhile; then its result is rejected, too.
                let _ = context.save_checkpoint(Payload::from(serde_json::json!(task.n))).await;
            }
            _ => {}
        }
        Ok(SimResult { fence: unit.fence }.into())
    }
}
