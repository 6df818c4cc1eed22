//! Implements [`WorkerApi`], each operation as one transaction.

use longshore_core::store::{
    CheckpointRequest, ClaimRequest, ClaimResult, FinishRequest, FinishResult, Heartbeat, HeartbeatReply,
    LeasedUnit,
};
use longshore_core::worker_session::{Lease, NewSession, SessionEnd};
use longshore_core::{Result, SessionId, Timestamp, WorkerApi};

use super::operations;
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};
use crate::{checkpoint, claim, finish, session};

operations! { WorkerApi {
    Relaxed open_session[](new: NewSession) -> () = session::open(&new);
    Relaxed heartbeat[](id: SessionId, beat: Heartbeat) -> HeartbeatReply = session::beat(id, &beat);
    Durable adopt[](from: SessionId, to: SessionId) -> Vec<LeasedUnit> = session::adopt(from, to);
    Relaxed claim[](claim: ClaimRequest) -> ClaimResult = claim::claim(&claim);
    Durable finish[](id: SessionId, finishes: Vec<FinishRequest>) -> Vec<FinishResult>
        = finish::finish(id, &finishes);
    {
        async fn close_session(&self, id: SessionId) -> Result<()> {
            let how = SessionEnd::Closed;
            self.writer.call(Durable, move |tx| session::end(tx, id, how).map(drop)).await
        }

        async fn start(&self, id: SessionId, leases: &[Lease]) -> Result<Vec<Option<Timestamp>>> {
            let leases = leases.to_vec();
            self.writer.call(Relaxed, move |tx| session::start(tx, id, &leases)).await
        }

        async fn release(&self, id: SessionId, leases: &[Lease]) -> Result<()> {
            let leases = leases.to_vec();
            self.writer.call(Relaxed, move |tx| session::release(tx, id, &leases)).await
        }

        async fn checkpoint(&self, id: SessionId, lease: Lease, request: CheckpointRequest) -> Result<bool> {
            longshore_core::unit::check_size("checkpoint", &request.state)?;
            let op = move |tx: &mut Tx<'_>| checkpoint::save(tx, id, &lease, &request);
            self.writer.call(Durable, op).await
        }

        async fn leases_of(&self, id: SessionId) -> Result<Vec<Lease>> {
            self.read(move |db| session::leases(db, session::number(db, id)?)).await
        }
    }
}}
