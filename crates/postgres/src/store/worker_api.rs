//! [`WorkerApi`] on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use longshore_accounts::CallRecord;
use longshore_core::effect_budget::EffectBudget;
use longshore_core::store::{
    CheckpointRequest, ClaimRequest, ClaimResult, FinishRequest, FinishResult, Heartbeat, HeartbeatReply,
    LeasedUnit, WorkerApi,
};
use longshore_core::unit::check_size;
use longshore_core::worker_session::{Lease, NewSession, SessionEnd};
use longshore_core::{Result, SessionId, Timestamp, UnitState};

use super::{operation, operation_without_timeout, operations};
use crate::connect::PostgresOptions;
use crate::tx::Tx;
use crate::{checkpoint, claim, finish, session, start_log};

operations! { WorkerApi {
    Relaxed open_session[](new: NewSession) -> () = session::open(&new);
    Durable adopt[](from: SessionId, to: SessionId) -> Vec<LeasedUnit> = session::adopt(from, to);
    Relaxed leases_of[](id: SessionId) -> Vec<Lease> = held(id);
    {
        async fn heartbeat(&self, id: SessionId, beat: Heartbeat) -> Result<HeartbeatReply> {
            self.inner.heartbeat(id, beat).await
        }

        async fn close_session(&self, id: SessionId) -> Result<()> {
            let ended: Result<(u64, u64)> =
                operation!(self, Durable, tx => session::end(&mut tx, id, SessionEnd::Closed));
            ended.map(drop)
        }

        async fn claim(&self, claim: ClaimRequest) -> Result<ClaimResult> {
            let claim = Arc::new(claim);
            let run = async {
                match claim::try_fast_path(&self.inner, &claim).await? {
                    Some(claimed) => Ok(claimed),
                    None => {
                        let stride = &self.inner.stride;
                        let full = operation_without_timeout!(self, Relaxed, tx =>
                            claim::claim(&mut tx, stride, &claim));
                        full.await
                    }
                }
            };
            let claimed: Result<ClaimResult> = self.inner.with_timeout(run).await;
            if claimed.as_ref().is_ok_and(|claimed| !claimed.units.is_empty()) {
                self.inner.claim_retry.reset();
            }
            claimed
        }

        async fn start(&self, id: SessionId, leases: &[Lease]) -> Result<Vec<Option<Timestamp>>> {
            self.inner.with_timeout(start_log::record_starts(&self.inner, id, leases)).await
        }

        async fn release(&self, id: SessionId, leases: &[Lease]) -> Result<()> {
            operation!(self, Relaxed, tx => session::release(&mut tx, id, leases))
        }

        async fn checkpoint(&self, id: SessionId, lease: Lease, request: CheckpointRequest) -> Result<bool> {
            check_size("checkpoint", &request.state)?;
            request.calls.iter().try_for_each(CallRecord::check)?;
            let PostgresOptions { timeout, effect_timeout, .. } = self.inner.options;
            let run = async {
                if !request.effects.is_empty() {
                    // As with a finish: effects must not keep other units of a lease group from ending.
                    session::settle_leases(&self.inner, id, &[lease]).await?;
                }
                let save = operation_without_timeout!(self, Durable, tx =>
                    checkpoint::save(&mut tx, id, &lease, &request, &mut EffectBudget::new(effect_timeout)));
                save.await
            };
            let effects = if request.effects.is_empty() { Duration::ZERO } else { effect_timeout * 3 };
            self.inner.with_time_limit(timeout + effects, run).await
        }

        async fn finish(&self, id: SessionId, finishes: Vec<FinishRequest>) -> Result<Vec<FinishResult>> {
            finish::check_calls(&finishes)?;
            let finishes = Arc::new(finishes);
            let PostgresOptions { timeout, effect_timeout, .. } = self.inner.options;
            let run = async {
                match finish::try_fast_path(&self.inner, id, &finishes).await? {
                    Some(ended) if ended.contains_all(&finishes) => {
                        Ok(vec![FinishResult::Recorded(UnitState::Done); finishes.len()])
                    }
                    Some(ended) => {
                        let rest = operation_without_timeout!(self, Durable, tx =>
                            finish::finish_rest(&mut tx, id, &finishes, &ended));
                        rest.await
                    }
                    None => {
                        finish::settle_slow(&self.inner, id, &finishes, false).await?;
                        let full = operation_without_timeout!(self, Durable, tx =>
                            finish::finish(&mut tx, id, &finishes, &mut EffectBudget::new(effect_timeout)));
                        full.await
                    }
                }
            };
            self.inner.with_time_limit(timeout + effect_timeout * 3, run).await
        }
    }
}}

async fn held(tx: &mut Tx<'_>, id: SessionId) -> Result<Vec<Lease>> {
    let num = session::number(tx, id).await?;
    session::leases(tx, num).await
}
