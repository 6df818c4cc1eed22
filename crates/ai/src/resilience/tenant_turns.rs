//! Fair order between tenants that wait for the same limit.
//!
//! Each tenant has a pass, which grows by what the tenant is served, divided by its weight, as in the
//! queues' stride scheduler. The waiter with the smallest pass is served next; a tenant's own waiters are served in
//! order of arrival. A tenant that was away starts at the pass of the tenant served last, so it has
//! no credit for that time. The order holds within one process: processes that share a limit draw
//! from its bucket independently of each other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use longshore::TenantId;
use tokio::sync::oneshot;

/// A tenant that waits for limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingTenant {
    /// The tenant.
    pub id: TenantId,
    /// Its weight relative to other tenants. At least 1.
    pub weight: u32,
}

impl WaitingTenant {
    /// What `cost` adds to the tenant's pass.
    pub(crate) fn stride(&self, cost: f64) -> f64 {
        cost / f64::from(self.weight.max(1))
    }
}

/// What each tenant was served of one limit.
#[derive(Debug, Default)]
pub(crate) struct TenantPasses {
    passes: HashMap<TenantId, f64>,
    /// The pass at which the last waiter was served.
    served: f64,
}

impl TenantPasses {
    /// By how much a tenant is ahead of the tenant served last.
    pub(crate) fn lead(&self, tenant: &TenantId) -> f64 {
        self.passes.get(tenant).map_or(0.0, |pass| (pass - self.served).max(0.0))
    }

    /// Records that a tenant was served so much.
    pub(crate) fn serve(&mut self, tenant: &WaitingTenant, cost: f64) {
        self.served += self.lead(&tenant.id);
        let served = self.served;
        self.passes.retain(|_, pass| *pass > served);
        self.passes.insert(tenant.id.clone(), served + tenant.stride(cost));
    }
}

/// A turn that one waiter holds at a time, passed on fairly by tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantTurns(Mutex<Turns>);

#[derive(Debug, Default)]
struct Turns {
    held: bool,
    /// In order of arrival.
    waiters: Vec<Waiter>,
    passes: TenantPasses,
}

#[derive(Debug)]
struct Waiter {
    tenant: WaitingTenant,
    cost: f64,
    sender: oneshot::Sender<Turn>,
}

/// The turn. Dropped, it is passed on.
#[derive(Debug)]
pub(crate) struct Turn(Arc<TenantTurns>);

impl TenantTurns {
    /// Acquires the turn if no one holds it.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Turn> {
        let mut turns = self.turns();
        (!std::mem::replace(&mut turns.held, true)).then(|| Turn(Arc::clone(self)))
    }

    /// Waits for the turn. Cancel-safe: a dropped future passes on what it was given. `cost` is what
    /// the waiter takes of the limit.
    pub(crate) async fn acquire(self: &Arc<Self>, tenant: &WaitingTenant, cost: f64) -> Turn {
        loop {
            match self.join(tenant, cost) {
                Ok(turn) => return turn,
                // The sender is kept until the turn is passed on to it.
                Err(receiver) => {
                    if let Ok(turn) = receiver.await {
                        return turn;
                    }
                }
            }
        }
    }

    fn join(self: &Arc<Self>, tenant: &WaitingTenant, cost: f64) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut turns = self.turns();
        if !std::mem::replace(&mut turns.held, true) {
            return Ok(Turn(Arc::clone(self)));
        }
        let (sender, receiver) = oneshot::channel();
        turns.waiters.push(Waiter { tenant: tenant.clone(), cost, sender });
        Err(receiver)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    /// Removes the waiter that is served next.
    fn next(&mut self) -> Option<Waiter> {
        self.waiters.retain(|waiter| !waiter.sender.is_closed());
        let leads = self.waiters.iter().map(|waiter| self.passes.lead(&waiter.tenant.id));
        let (at, _) = leads.enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let waiter = self.waiters.remove(at);
        self.passes.serve(&waiter.tenant, waiter.cost);
        Some(waiter)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.0.turns();
        let next = turns.next();
        turns.held = next.is_some();
        drop(turns);
        if let Some(waiter) = next {
            // Without a receiver, this turn is dropped and passed on in turn.
            let _ = waiter.sender.send(Self(Arc::clone(&self.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> WaitingTenant {
        WaitingTenant { id: TenantId::new(name).unwrap(), weight: 1 }
    }

    #[tokio::test]
    async fn a_turn_goes_round_between_tenants_however_many_questions_each_has() {
        let turns = Arc::new(TenantTurns::default());
        let held = turns.try_acquire().unwrap();
        assert!(turns.try_acquire().is_none());
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for name in ["big"; 6].into_iter().chain(["small"; 3]) {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            waiting.spawn(async move {
                let _turn = turns.acquire(&tenant(name), 1.0).await;
                order.lock().unwrap().push(name);
            });
            tokio::task::yield_now().await;
        }
        drop(held);
        waiting.join_all().await;
        let order = order.lock().unwrap().join(" ");
        assert_eq!(order, "big small big small big small big big big");
        assert!(turns.try_acquire().is_some(), "it is free again");
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_loses_no_turn() {
        let turns = Arc::new(TenantTurns::default());
        let held = turns.try_acquire().unwrap();
        let acme = tenant("acme");
        let mut leaving = Box::pin(turns.acquire(&acme, 1.0));
        tokio::select! {
            biased;
            _ = &mut leaving => panic!("it is held"),
            () = std::future::ready(()) => {}
        }
        drop(held);
        // It was given the turn, and does not take it.
        drop(leaving);
        assert!(turns.try_acquire().is_some());
    }

    #[test]
    fn a_tenant_that_was_away_is_next_and_has_no_credit_for_that_time() {
        let (big, small) = (tenant("big"), tenant("small"));
        let mut passes = TenantPasses::default();
        (0..100).for_each(|_| passes.serve(&big, 10.0));
        let lead = |passes: &TenantPasses, tenant: &WaitingTenant| passes.lead(&tenant.id);
        assert_eq!((lead(&passes, &big), lead(&passes, &small)), (10.0, 0.0));
        // A tenth of the size: ten of them for one.
        for _ in 0..10 {
            assert!(lead(&passes, &small) < lead(&passes, &big));
            passes.serve(&small, 1.0);
        }
        assert!(lead(&passes, &small) >= lead(&passes, &big));
        let heavy = WaitingTenant { weight: 4, ..tenant("heavy") };
        passes.serve(&heavy, 10.0);
        assert_eq!(lead(&passes, &heavy), 2.5, "a weight of 4 is four shares");
    }
}
