//! Implements [`Permits`].

use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, PoolChange, PoolStats};
use longshore_core::{PermitId, Permits, PoolName, Result};

use super::operations;
use crate::permits::{self, ops};
use crate::writer::Durability::Relaxed;

operations! { Permits {
    Relaxed renew[pool: PoolName, ids: [PermitId]](ttl: Duration) -> Vec<PermitId>
        = ops::extend(ttl);
    Durable change_pool[pool: PoolName](change: PoolChange) -> Option<u32> = ops::change(change);
    Relaxed acquire_alert[pool: PoolName, alert: str](every: Duration) -> bool = ops::may_alert(every);
    {
        async fn acquire(&self, pool: &PoolName, ask: &AcquireRequest) -> Result<AcquireResult> {
            let (pool, ask, id) = (pool.clone(), ask.clone(), ask.id);
            // Before the request: a wake-up may come before the answer.
            self.signals.wakeups.register(id);
            let answer = self.writer.call(Relaxed, move |tx| ops::ask(tx, &pool, &ask)).await;
            if !matches!(answer, Ok(AcquireResult::Waiting { .. })) {
                self.signals.wakeups.remove(&[id]);
            }
            answer
        }

        async fn pools(&self, name: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>> {
            let name = name.cloned();
            self.read(move |db| permits::list(db, name.as_ref())).await
        }

        async fn wait_for_wakeup(&self, _: &PoolName, id: PermitId) {
            if let Some(wakeup) = self.signals.wakeups.get(id) {
                wakeup.notified().await;
            }
        }

        async fn release(&self, pool: &PoolName, ids: &[PermitId], timed_out: bool) -> Result<()> {
            self.signals.wakeups.remove(ids);
            let (pool, ids) = (pool.clone(), ids.to_vec());
            self.writer.call(Relaxed, move |tx| ops::release(tx, &pool, &ids, timed_out)).await
        }
    }
}}
