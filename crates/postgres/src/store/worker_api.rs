//! [`Leases`] on PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use longshore_core::ledger::CallRecord;
use longshore_core::session::{Lease, NewSession, SessionEnd};
use longshore_core::store::Kept;
use longshore_core::store::{
    Beat, BeatAnswer, Claim, Claimed, Finish, Finished, HeldUnit, Leases, ProgressNote,
};
use longshore_core::unit::check_size;
use longshore_core::{Result, SessionId, Timestamp, UnitState};

use super::{PostgresStore, operation, operation_without_timeout};
use crate::tx::Tx;
use crate::{checkpoint, claim, finish, session, start_log};

#[async_trait]
impl Leases for PostgresStore {
    async fn open_session(&self, new: NewSession) -> Result<()> {
        operation!(self, Relaxed, tx => session::open(&mut tx, &new))
    }

    async fn beat(&self, id: SessionId, beat: Beat) -> Result<BeatAnswer> {
        operation!(self, Relaxed, tx => session::beat(&mut tx, id, &beat))
    }

    async fn close_session(&self, id: SessionId) -> Result<()> {
        let ended: Result<(u64, u64)> =
            operation!(self, Durable, tx => session::end(&mut tx, id, SessionEnd::Closed));
        ended.map(drop)
    }

    async fn adopt(&self, from: SessionId, to: SessionId) -> Result<Vec<HeldUnit>> {
        operation!(self, Durable, tx => session::adopt(&mut tx, from, to))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
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
        let claimed: Result<Claimed> = self.inner.with_timeout(run).await;
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

    async fn checkpoint(&self, id: SessionId, lease: Lease, kept: Kept) -> Result<bool> {
        check_size("checkpoint", &kept.state)?;
        kept.calls.iter().try_for_each(CallRecord::check)?;
        operation!(self, Durable, tx => checkpoint::save(&mut tx, id, &lease, &kept))
    }

    async fn progress(&self, id: SessionId, notes: Vec<ProgressNote>) -> Result<()> {
        operation!(self, Relaxed, tx => progress(&mut tx, id, &notes))
    }

    async fn finish(&self, id: SessionId, finishes: Vec<Finish>) -> Result<Vec<Finished>> {
        finish::check_calls(&finishes)?;
        let finishes = Arc::new(finishes);
        let run = async {
            match finish::try_fast_path(&self.inner, id, &finishes).await? {
                Some(ended) if ended.contains_all(&finishes) => {
                    Ok(vec![Finished::Recorded(UnitState::Done); finishes.len()])
                }
                Some(ended) => {
                    let rest = operation_without_timeout!(self, Durable, tx =>
                        finish::finish_rest(&mut tx, id, &finishes, &ended));
                    rest.await
                }
                None => {
                    let full = operation_without_timeout!(self, Durable, tx =>
                        finish::finish(&mut tx, id, &finishes));
                    full.await
                }
            }
        };
        self.inner.with_timeout(run).await
    }

    async fn held(&self, id: SessionId) -> Result<Vec<Lease>> {
        operation!(self, Relaxed, tx => held(&mut tx, id))
    }
}

async fn progress(tx: &mut Tx<'_>, id: SessionId, notes: &[ProgressNote]) -> Result<()> {
    let num = session::number(tx, id).await?;
    session::progress(tx, num, notes).await
}

async fn held(tx: &mut Tx<'_>, id: SessionId) -> Result<Vec<Lease>> {
    let num = session::number(tx, id).await?;
    session::leases(tx, num).await
}
