//! Implements [`Upkeep`].

use std::time::Duration;

use longshore_core::stall::Dead;
use longshore_core::store::{Promoted, Pruned, Reclaimed, Retention};
use longshore_core::{Result, SessionId, Upkeep};

use super::operations;
use crate::maintenance;
use crate::writer::Durability::Durable;

operations! { Upkeep {
    Durable promote[](limit: u32) -> Promoted = maintenance::promote(limit);
    Durable prune[](retention: Retention, limit: u32) -> Pruned
        = maintenance::prune(retention, limit);
    Relaxed lead[role: str](id: SessionId, ttl: Duration) -> bool = maintenance::lead(id, ttl);
    {
        async fn reclaim(&self, dead: &[Dead]) -> Result<Reclaimed> {
            let mut all = Reclaimed::default();
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
                all.rescued += one.rescued;
                all.failed += one.failed;
            }
            Ok(all)
        }
    }
}}
