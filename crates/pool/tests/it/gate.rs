//! Operations that wait until the test opens a gate, so that no test depends on timing.

use std::sync::{Arc, Condvar, Mutex};

use longshore_pool::{Operations, PoolSettings, WorkerPool};

use crate::helpers::eventually;

/// A gate at which calls wait.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    open: bool,
    /// The arguments of the calls that arrived, in order.
    arrived: Vec<u64>,
    inside: usize,
    most_inside: usize,
}

impl Gate {
    /// Arrives, and waits until the gate is open.
    pub(crate) fn pass(&self, id: u64) {
        let (state, opened) = &*self.0;
        let mut state = state.lock().unwrap();
        state.arrived.push(id);
        state.inside += 1;
        state.most_inside = state.most_inside.max(state.inside);
        let mut state = opened.wait_while(state, |state| !state.open).unwrap();
        state.inside -= 1;
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }

    pub(crate) fn shut(&self) {
        self.0.0.lock().unwrap().open = false;
    }

    /// The arguments of the calls that arrived, in order.
    pub(crate) fn arrived(&self) -> Vec<u64> {
        self.0.0.lock().unwrap().arrived.clone()
    }

    /// Largest number of calls that waited at the same time.
    pub(crate) fn most_inside(&self) -> usize {
        self.0.0.lock().unwrap().most_inside
    }

    pub(crate) async fn wait_for(&self, count: usize) {
        eventually("calls at the gate", || self.arrived().len() >= count).await;
    }
}

/// The operations of the tests: `gate` waits at the gate, `panic` panics, `fail` returns an error.
pub(crate) fn operations(gate: &Gate) -> Operations {
    let gate = gate.clone();
    Operations::stateless()
        .add("gate", move |(), id: u64| {
            gate.pass(id);
            Ok::<_, String>(id)
        })
        .add("double", |(), n: u64| Ok::<_, String>(n * 2))
        .add("fail", |(), words: String| Err::<(), _>(words))
        .add("panic", |(), words: String| -> Result<(), String> { std::panic::panic_any(words) })
}

/// A pool of threads, and the gate of its calls.
pub(crate) async fn gated(change: impl FnOnce(&mut PoolSettings)) -> (WorkerPool, Gate) {
    let (mut settings, gate) = (PoolSettings::default(), Gate::default());
    change(&mut settings);
    let pool = WorkerPool::threads("gated", operations(&gate), settings).await.unwrap();
    (pool, gate)
}
