//! Controls a worker from outside: quiet, drain, stop. The level of a handle only rises.

use std::sync::Arc;

use longshore_core::session::Order;
use tokio::sync::watch;

/// A handle to a running worker. Clones control the same worker.
#[derive(Debug, Clone)]
pub struct WorkerControl {
    levels: Arc<watch::Sender<OrderLevels>>,
    slots: Arc<watch::Sender<Option<u32>>>,
}

/// The requested levels. The higher one applies.
#[derive(Debug, Clone, Copy, Default)]
struct OrderLevels {
    /// Set by this handle; never falls.
    requested: Order,
    /// Set by an operator through the store: quiet can be lifted, drain and stop cannot.
    operator: Order,
}

impl OrderLevels {
    fn order(self) -> Order {
        self.requested.max(self.operator)
    }
}

impl WorkerControl {
    pub(crate) fn new() -> Self {
        let levels = Arc::new(watch::Sender::new(OrderLevels::default()));
        Self { levels, slots: Arc::new(watch::Sender::new(None)) }
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
        self.request(Order::Quiet);
    }

    /// Finishes running units, then ends.
    pub fn drain(&self) {
        self.request(Order::Drain);
    }

    /// Ends now: cancels running handlers and drops them after the grace.
    pub fn stop(&self) {
        self.request(Order::Stop);
    }

    /// The current order.
    pub fn order(&self) -> Order {
        self.levels.borrow().order()
    }

    /// The operator's order, whatever this handle requested.
    pub(crate) fn operator_order(&self) -> Order {
        self.levels.borrow().operator
    }

    /// Returns once the order is at least `level`.
    pub async fn reached(&self, level: Order) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.levels.subscribe().wait_for(|levels| levels.order() >= level).await;
    }

    /// Returns once the order is no longer `level`.
    pub(crate) async fn changed_from(&self, level: Order) {
        let _ = self.levels.subscribe().wait_for(|levels| levels.order() != level).await;
    }

    /// Applies the operator's order that the store reported.
    pub(crate) fn set_operator_order(&self, order: Order) {
        self.levels.send_if_modified(|levels| {
            let next =
                if levels.operator >= Order::Drain { levels.operator.max(order) } else { order };
            let before = std::mem::replace(&mut levels.operator, next);
            before != next
        });
    }

    fn request(&self, order: Order) {
        self.levels.send_if_modified(|levels| {
            let raised = order > levels.requested;
            levels.requested = levels.requested.max(order);
            raised
        });
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
        assert_eq!(control.order(), Order::Drain);
        control.stop();
        assert_eq!(control.order(), Order::Stop);
    }

    #[test]
    fn an_operator_may_lift_quiet_but_not_drain() {
        let control = WorkerControl::new();
        control.set_operator_order(Order::Quiet);
        assert_eq!(control.order(), Order::Quiet);
        control.set_operator_order(Order::Work);
        assert_eq!(control.order(), Order::Work);
        control.set_operator_order(Order::Drain);
        control.set_operator_order(Order::Work);
        assert_eq!(control.order(), Order::Drain);
    }
}
