//! Implements [`Leases`], each operation as one transaction.

use async_trait::async_trait;
use longshore_core::session::{Lease, NewSession, SessionEnd};
use longshore_core::store::Kept;
use longshore_core::store::{
    Beat, BeatAnswer, Claim, Claimed, Finish, Finished, HeldUnit, ProgressNote,
};
use longshore_core::{Leases, Result, SessionId, Timestamp};

use super::SqliteStore;
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};
use crate::{checkpoint, claim, finish, session};

#[async_trait]
impl Leases for SqliteStore {
    async fn open_session(&self, new: NewSession) -> Result<()> {
        self.writer.call(Relaxed, move |tx| session::open(tx, &new)).await
    }

    async fn beat(&self, id: SessionId, beat: Beat) -> Result<BeatAnswer> {
        self.writer.call(Relaxed, move |tx| session::beat(tx, id, &beat)).await
    }

    async fn close_session(&self, id: SessionId) -> Result<()> {
        let how = SessionEnd::Closed;
        self.writer.call(Durable, move |tx| session::end(tx, id, how).map(drop)).await
    }

    async fn adopt(&self, from: SessionId, to: SessionId) -> Result<Vec<HeldUnit>> {
        self.writer.call(Durable, move |tx| session::adopt(tx, from, to)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.writer.call(Relaxed, move |tx| claim::claim(tx, &claim)).await
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

    async fn progress(&self, id: SessionId, notes: Vec<ProgressNote>) -> Result<()> {
        let op = move |tx: &mut Tx<'_>| {
            let num = session::number(tx.db, id)?;
            session::progress(tx, num, &notes)
        };
        self.writer.call(Relaxed, op).await
    }

    async fn finish(&self, id: SessionId, finishes: Vec<Finish>) -> Result<Vec<Finished>> {
        self.writer.call(Durable, move |tx| finish::finish(tx, id, &finishes)).await
    }

    async fn held(&self, id: SessionId) -> Result<Vec<Lease>> {
        self.read(move |db| session::leases(db, session::number(db, id)?)).await
    }
}
