//! Implements [`Maintenance`].

use std::time::Duration;

use longshore_core::failure_detector::{SessionBeats, StalledSession};
use longshore_core::store::{PromoteResult, PruneResult, ReclaimResult, Retention};
use longshore_core::{Maintenance, Result, SessionId};

use super::operations;
use crate::writer::Durability::Durable;
use crate::{maintenance, session};

operations! { Maintenance {
    Read session_beats[]() -> Vec<SessionBeats> = session::beats();
    Durable promote[](limit: u32) -> PromoteResult = maintenance::promote(limit);
    Durable prune[](retention: Retention, limit: u32) -> PruneResult
        = maintenance::prune(retention, limit);
    Relaxed acquire_leadership[role: str](id: SessionId, ttl: Duration) -> bool = maintenance::lead(id, ttl);
    {
        async fn reclaim(&self, dead: &[StalledSession]) -> Result<ReclaimResult> {
            let mut all = ReclaimResult::default();
            // One transaction each: many dead sessions do not block the live ones.
            for &dead in dead {
                let one =
                    match self.writer.call(Durable, move |tx| maintenance::reclaim(tx, dead)).await {
                        Ok(one) => one,
                        Err(error) if error.is_retryable() => return Err(error),
                        Err(error) => {
                            // A session that cannot be ended must not keep the units of others from
                            // running.
                            tracing::error!(%error, session = %dead.session, "cannot reclaim");
                            continue;
                        }
                    };
                all.sessions += one.sessions;
                all.requeued += one.requeued;
                all.failed += one.failed;
            }
            Ok(all)
        }
    }
}}
