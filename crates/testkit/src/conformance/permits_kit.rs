//! Short words for what cases of permits do.
//!
//! A back end may have a clock of its own that cannot be moved. So what must still be held is held for
//! [`LONG`], what must run out for [`SHORT`], and no case says that the latter is still there.

use std::time::Duration;

use longshore_core::permits::{Answer, Ask, Grant, Leaving, Otherwise, PoolStats};
use longshore_core::{PermitId, PoolName, Priority};

use crate::PermitsWorld;

/// Longer than any case takes.
pub(super) const LONG: Duration = Duration::from_secs(600);
/// Soon over.
pub(super) const SHORT: Duration = Duration::from_millis(100);
/// Long enough to do something before it is over, even on a busy machine.
pub(super) const WHILE: Duration = Duration::from_secs(2);
/// A hint that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn pool() -> PoolName {
    pool_named("mjml")
}

pub(super) fn pool_named(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

/// One permit of a pool of `max`, for long; waits for it.
pub(super) fn of(max: u32) -> Ask {
    Ask {
        id: PermitId::new(),
        max,
        weight: 1,
        priority: Priority::NORMAL,
        owner: "case".into(),
        ttl: LONG,
        otherwise: Otherwise::Wait(LONG),
    }
}

/// So much of a pool of `max`.
pub(super) fn heavy(weight: u32, max: u32) -> Ask {
    Ask { weight, ..of(max) }
}

/// The same, without waiting.
pub(super) fn at_once(ask: &Ask) -> Ask {
    Ask { otherwise: Otherwise::GoAway, ..ask.clone() }
}

/// One permit whose lease is soon over.
pub(super) fn short(max: u32) -> Ask {
    Ask { ttl: SHORT, ..of(max) }
}

impl PermitsWorld {
    pub(super) async fn ask(&self, ask: &Ask) -> Answer {
        self.permits.ask(&pool(), ask).await.unwrap()
    }

    /// Asks for what must be given.
    pub(super) async fn take(&self, ask: &Ask) -> Grant {
        match self.ask(ask).await {
            Answer::Granted(grant) => grant,
            other => panic!("not granted but {other:?}: {:#?}", self.stats().await),
        }
    }

    /// Asks for one that must be given, and returns its id.
    pub(super) async fn one_of(&self, max: u32) -> PermitId {
        let ask = of(max);
        self.take(&ask).await;
        ask.id
    }

    /// Asks for what must be waited for; how many stand before it.
    pub(super) async fn stand(&self, ask: &Ask) -> u32 {
        match self.ask(ask).await {
            Answer::Waiting { before, look_again } => {
                assert!(look_again > Duration::ZERO, "it would be asked without a pause");
                before
            }
            other => panic!("not in line but {other:?}"),
        }
    }

    /// Stands in line for one, at its end.
    pub(super) async fn waiter(&self, max: u32) -> Ask {
        let ask = of(max);
        self.stand(&ask).await;
        ask
    }

    /// Waits for a hint that must come.
    pub(super) async fn turn(&self, id: PermitId) {
        let name = pool();
        let turn = self.permits.turn(&name, id);
        assert!(tokio::time::timeout(PATIENCE, turn).await.is_ok(), "no hint came");
    }

    /// Waits for its turn, as whoever waits does: by asking again after each hint.
    pub(super) async fn take_in_turn(&self, ask: &Ask) -> Grant {
        loop {
            match self.ask(ask).await {
                Answer::Granted(grant) => return grant,
                Answer::Waiting { .. } => self.turn(ask.id).await,
                other => panic!("not in line but {other:?}"),
            }
        }
    }

    pub(super) async fn release(&self, id: PermitId) {
        self.permits.release(&pool(), &[id]).await.unwrap();
    }

    pub(super) async fn leave(&self, id: PermitId, why: Leaving) {
        self.permits.leave(&pool(), id, why).await.unwrap();
    }

    pub(super) async fn resize(&self, max: u32) {
        self.permits.resize(&pool(), max).await.unwrap();
    }

    pub(super) async fn extend(&self, ids: &[PermitId], ttl: Duration) -> Vec<PermitId> {
        self.permits.extend(&pool(), ids, ttl).await.unwrap()
    }

    /// The figures of a pool that is known.
    pub(super) async fn stats(&self) -> PoolStats {
        self.permits.stats(&pool()).await.unwrap().unwrap()
    }

    /// Weight in use, and how many wait.
    pub(super) async fn busy(&self) -> (u32, usize) {
        let stats = self.stats().await;
        (stats.in_use, stats.waiting.len())
    }
}
