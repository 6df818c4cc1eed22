//! Controls a worker from outside: quiet, drain, stop. The level of a handle only rises.

use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::worker_session::WorkerCommand;
use tokio::sync::{Notify, watch};

/// A handle to a running worker. Clones control the same worker.
#[derive(Debug, Clone)]
pub struct WorkerControl {
    orders: Arc<Orders>,
    slots: Arc<watch::Sender<Option<u32>>>,
}

/// The levels and their waiters. A watch channel would wake its waiters in a random order, and a simulation could not be
/// repeated.
#[derive(Debug, Default)]
struct Orders {
    levels: Mutex<OrderLevels>,
    changed: Notify,
}

/// The requested levels. The higher one applies.
#[derive(Debug, Clone, Copy, Default)]
struct OrderLevels {
    /// Set by this handle; never falls.
    requested: WorkerCommand,
    /// Set by an operator through the store: quiet can be lifted, drain and stop cannot.
    operator: WorkerCommand,
}

impl OrderLevels {
    fn order(self) -> WorkerCommand {
        self.requested.max(self.operator)
    }
}

impl WorkerControl {
    pub(crate) fn new() -> Self {
        Self { orders: Arc::default(), slots: Arc::new(watch::Sender::new(None)) }
    }

    /// Limits the worker to `slots` slots, between 1 and the number it was built with. Runs above
    /// the limit may finish.
    pub fn resize(&self, slots: u32) {
        self.slots.send_replace(Some(slots));
    }

    /// Watches the number of slots that was last requested.
    pub(crate) fn slot_target(&self) -> watch::Receiver<Option<u32>> {
        self.slots.subscribe()
    }

    /// Claims nothing new and returns unstarted units.
    pub fn quiet(&self) {
        self.request(WorkerCommand::Quiet);
    }

    /// Finishes running units, then ends.
    pub fn drain(&self) {
        self.request(WorkerCommand::Drain);
    }

    /// Ends now: cancels running handlers and drops them after the grace.
    pub fn stop(&self) {
        self.request(WorkerCommand::Stop);
    }

    /// The current order.
    pub fn order(&self) -> WorkerCommand {
        self.levels().order()
    }

    /// The operator's order, whatever this handle requested.
    pub(crate) fn operator_order(&self) -> WorkerCommand {
        self.levels().operator
    }

    /// Returns once the order is at least `level`.
    pub async fn wait_for_order(&self, level: WorkerCommand) {
        self.wait_until(|order| order >= level).await;
    }

    /// Returns once the order is no longer `level`.
    pub(crate) async fn changed_from(&self, level: WorkerCommand) {
        self.wait_until(|order| order != level).await;
    }

    async fn wait_until(&self, reached: impl Fn(WorkerCommand) -> bool) {
        loop {
            let changed = self.orders.changed.notified();
            if reached(self.order()) {
                return;
            }
            changed.await;
        }
    }

    /// Applies the operator's order that the store reported.
    pub(crate) fn set_operator_order(&self, order: WorkerCommand) {
        self.change(|levels| {
            let lifts = levels.operator < WorkerCommand::Drain;
            levels.operator = if lifts { order } else { levels.operator.max(order) };
        });
    }

    fn request(&self, order: WorkerCommand) {
        self.change(|levels| levels.requested = levels.requested.max(order));
    }

    fn levels(&self) -> OrderLevels {
        *self.orders.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut OrderLevels)) {
        change(&mut self.orders.levels.lock().unwrap_or_else(PoisonError::into_inner));
        self.orders.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_only_rises() {
        let control = WorkerControl::new();
        control.drain();
        control.quiet();
        assert_eq!(control.order(), WorkerCommand::Drain);
        control.stop();
        assert_eq!(control.order(), WorkerCommand::Stop);
    }

    #[test]
    fn an_operator_may_lift_quiet_but_not_drain() {
        let control = WorkerControl::new();
        control.set_operator_order(WorkerCommand::Quiet);
        assert_eq!(control.order(), WorkerCommand::Quiet);
        control.set_operator_order(WorkerCommand::Work);
        assert_eq!(control.order(), WorkerCommand::Work);
        control.set_operator_order(WorkerCommand::Drain);
        control.set_operator_order(WorkerCommand::Work);
        assert_eq!(control.order(), WorkerCommand::Drain);
    }
}
