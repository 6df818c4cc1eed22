//! Implements [`Leases`], each operation as one transaction.

use longshore_core::session::{Lease, NewSession, SessionEnd};
use longshore_core::store::{Beat, BeatAnswer, Claim, Claimed, Finish, Finished, HeldUnit, Kept};
use longshore_core::{Leases, Result, SessionId, Timestamp};

use super::operations;
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};
use crate::{checkpoint, claim, finish, session};

operations! { Leases {
    Relaxed open_session[](new: NewSession) -> () = session::open(&new);
    Relaxed beat[](id: SessionId, beat: Beat) -> BeatAnswer = session::beat(id, &beat);
    Durable adopt[](from: SessionId, to: SessionId) -> Vec<HeldUnit> = session::adopt(from, to);
    Relaxed claim[](claim: Claim) -> Claimed = claim::claim(&claim);
    Durable finish[](id: SessionId, finishes: Vec<Finish>) -> Vec<Finished>
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

        async fn checkpoint(&self, id: SessionId, lease: Lease, kept: Kept) -> Result<bool> {
            longshore_core::unit::check_size("checkpoint", &kept.state)?;
            let op = move |tx: &mut Tx<'_>| checkpoint::save(tx, id, &lease, &kept);
            self.writer.call(Durable, op).await
        }

        async fn held(&self, id: SessionId) -> Result<Vec<Lease>> {
            self.read(move |db| session::leases(db, session::number(db, id)?)).await
        }
    }
}}
