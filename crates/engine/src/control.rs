//! Steering a worker from outside: quiet, drain, stop. Levels only rise.

use std::sync::Arc;

use longshore_core::session::Order;
use tokio::sync::watch;

/// A handle to steer a running worker. Clones steer the same one.
#[derive(Debug, Clone)]
pub struct WorkerControl {
    levels: Arc<watch::Sender<Levels>>,
    slots: Arc<watch::Sender<Option<u32>>>,
}

/// Who asked for what. The stronger wins.
#[derive(Debug, Clone, Copy, Default)]
struct Levels {
    /// By this handle: never goes down.
    asked: Order,
    /// By an operator through the store: quiet may be lifted, drain and stop may not.
    ordered: Order,
}

impl Levels {
    fn order(self) -> Order {
        self.asked.max(self.ordered)
    }
}

impl WorkerControl {
    pub(crate) fn new() -> Self {
        let levels = Arc::new(watch::Sender::new(Levels::default()));
        Self { levels, slots: Arc::new(watch::Sender::new(None)) }
    }

    /// Use at most so many slots from now on, between 1 and what the worker was built with. What
    /// runs beyond that may finish.
    pub fn resize(&self, slots: u32) {
        self.slots.send_replace(Some(slots));
    }

    /// How many slots the worker was last told to use.
    pub(crate) fn wanted_slots(&self) -> watch::Receiver<Option<u32>> {
        self.slots.subscribe()
    }

    /// Claim nothing new and give back what has not started.
    pub fn quiet(&self) {
        self.ask(Order::Quiet);
    }

    /// Finish what runs, then end.
    pub fn drain(&self) {
        self.ask(Order::Drain);
    }

    /// End now: what runs is cancelled and, after a short grace, dropped.
    pub fn stop(&self) {
        self.ask(Order::Stop);
    }

    /// The present order.
    pub fn order(&self) -> Order {
        self.levels.borrow().order()
    }

    /// What an operator wants, whatever this handle asked for.
    pub(crate) fn operators_order(&self) -> Order {
        self.levels.borrow().ordered
    }

    /// Returns once the order is at least `level`.
    pub async fn reached(&self, level: Order) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.levels.subscribe().wait_for(|levels| levels.order() >= level).await;
    }

    /// Returns once the order is no longer `level`.
    pub(crate) async fn left(&self, level: Order) {
        let _ = self.levels.subscribe().wait_for(|levels| levels.order() != level).await;
    }

    /// What the store says an operator wants.
    pub(crate) fn ordered(&self, order: Order) {
        self.levels.send_if_modified(|levels| {
            let next =
                if levels.ordered >= Order::Drain { levels.ordered.max(order) } else { order };
            let before = std::mem::replace(&mut levels.ordered, next);
            before != next
        });
    }

    fn ask(&self, order: Order) {
        self.levels.send_if_modified(|levels| {
            let raised = order > levels.asked;
            levels.asked = levels.asked.max(order);
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
        control.ordered(Order::Quiet);
        assert_eq!(control.order(), Order::Quiet);
        control.ordered(Order::Work);
        assert_eq!(control.order(), Order::Work);
        control.ordered(Order::Drain);
        control.ordered(Order::Work);
        assert_eq!(control.order(), Order::Drain);
    }
}
