//! Implements [`WorkerApi`], each operation as one transaction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::store::{
    CheckpointRequest, ClaimRequest, ClaimResult, FinishRequest, FinishResult, Heartbeat, HeartbeatReply,
    LeasedUnit,
};
use longshore_core::worker_session::{Lease, NewSession, SessionEnd};
use longshore_core::{Result, SessionId, Timestamp, WorkerApi};

use super::{SqliteStore, operations};
use crate::effects::EffectRuns;
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};
use crate::{checkpoint, claim, finish, session};

operations! { WorkerApi {
    Relaxed open_session[](new: NewSession) -> () = session::open(&new);
    Relaxed heartbeat[](id: SessionId, beat: Heartbeat) -> HeartbeatReply = session::beat(id, &beat);
    Durable adopt[](from: SessionId, to: SessionId) -> Vec<LeasedUnit> = session::adopt(from, to);
    Relaxed claim[](claim: ClaimRequest) -> ClaimResult = claim::claim(&claim);
    {
        async fn finish(&self, id: SessionId, finishes: Vec<FinishRequest>) -> Result<Vec<FinishResult>> {
            self.with_effects(finishes, move |tx, finishes, effects| finish::finish(tx, id, finishes, effects))
                .await
        }

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
            self.with_effects(request, move |tx, request, effects| {
                checkpoint::save(tx, id, &lease, request, effects)
            })
            .await
        }

        async fn leases_of(&self, id: SessionId) -> Result<Vec<Lease>> {
            self.read(move |db| session::leases(db, session::number(db, id)?)).await
        }
    }
}}

impl SqliteStore {
    /// Runs an operation with effects of users. Effects that took too long ended the transaction: the
    /// operation runs again without them.
    async fn with_effects<I: Send + Sync + 'static, T: Send + 'static>(
        &self,
        input: I,
        run: impl Fn(&mut Tx<'_>, &I, &mut EffectRuns) -> Result<T> + Copy + Send + 'static,
    ) -> Result<T> {
        let input = Arc::new(input);
        let effects = Arc::new(Mutex::new(EffectRuns::new(self.options.effect_timeout)));
        let timeouts = || lock(&effects).timeouts();
        loop {
            let (before, input, effects) = (timeouts(), Arc::clone(&input), Arc::clone(&effects));
            let op = move |tx: &mut Tx<'_>| run(tx, &input, &mut lock(&effects));
            match self.writer.call(Durable, op).await {
                Err(_) if timeouts() > before => {}
                answer => return answer,
            }
        }
    }
}

fn lock(effects: &Mutex<EffectRuns>) -> MutexGuard<'_, EffectRuns> {
    effects.lock().unwrap_or_else(PoisonError::into_inner)
}
