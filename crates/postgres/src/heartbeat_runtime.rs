//! The thread and the connections of heartbeats and of permit renewals.
//!
//! A pooled connection is driven by the runtime that opened it. Handlers may block every thread of that runtime, and
//! stuck operations may hold every connection of the pool. A heartbeat must not wait for either, or the worker is
//! declared dead and its units run twice. Nor must the renewal of a permit, or the permit is granted to another process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_core::store::{Heartbeat, HeartbeatReply};
use longshore_core::{Error, PermitId, PoolName, Result, SessionId};
use longshore_postgres_url::Pool;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use crate::error::from_pool;
use crate::permits;
use crate::session;
use crate::store::{StoreInner, retry_transaction};
use crate::tx::{Durability, Tx};

/// A heartbeat that takes longer is repeated on a new connection, while the session is still alive.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// A runtime of one thread, and pools that only tasks of this runtime use.
pub(crate) struct HeartbeatRuntime {
    pool: Pool,
    /// Renewals may wait for locks, and heartbeats do not wait for renewals.
    permit_pool: Pool,
    /// Started by the first heartbeat: most processes are not workers.
    runtime: Mutex<Option<Runtime>>,
}

impl HeartbeatRuntime {
    /// Creates it without a thread.
    pub(crate) fn new(pool: Pool, permit_pool: Pool) -> Self {
        Self { pool, permit_pool, runtime: Mutex::default() }
    }

    fn handle(&self) -> Result<Handle> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match &mut *runtime {
            Some(runtime) => runtime,
            none => none.insert(start_thread()?),
        };
        Ok(runtime.handle().clone())
    }
}

fn start_thread() -> Result<Runtime> {
    let runtime =
        Builder::new_multi_thread().worker_threads(1).thread_name("longshore-pg-beat").enable_all().build();
    runtime.map_err(|error| Error::Unavailable {
        message: "cannot start the thread of heartbeats".to_owned(),
        source: Some(Box::new(error)),
    })
}

impl Drop for HeartbeatRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // Does not wait, so that the store can be dropped inside a runtime.
            runtime.shutdown_background();
        }
    }
}

impl StoreInner {
    /// Records a heartbeat on the thread and the connection of heartbeats. If the caller drops the future, the
    /// connection is closed.
    pub(crate) async fn heartbeat(
        self: &Arc<Self>,
        session: SessionId,
        beat: Heartbeat,
    ) -> Result<HeartbeatReply> {
        let limit = self.options.timeout.min(HEARTBEAT_TIMEOUT);
        let store = HeartbeatStore(Arc::clone(self));
        let task = self.heartbeats.handle()?.spawn(async move {
            let beaten = retry_transaction!(store, Relaxed, tx => session::beat(&mut tx, session, &beat));
            store.0.with_time_limit(limit, beaten).await.map(|(reply, _)| reply)
        });
        AbortOnDropHandle::new(task).await.map_err(task_failed)?
    }

    /// Renews permits on the thread of heartbeats. The task completes although the caller drops the future: it wakes
    /// the waiters that the server names.
    pub(crate) async fn renew_permits(
        self: &Arc<Self>,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        let (store, pool, ids) = (Arc::clone(self), pool.clone(), ids.to_vec());
        let task = self.heartbeats.handle()?.spawn(async move {
            let renewed = permits::extend(&store, &store.heartbeats.permit_pool, &pool, &ids, ttl);
            store.with_timeout(renewed).await
        });
        task.await.map_err(task_failed)?
    }
}

fn task_failed(error: JoinError) -> Error {
    Error::Unavailable {
        message: "a task on the thread of heartbeats failed".to_owned(),
        source: Some(Box::new(error)),
    }
}

/// Begins transactions on the connection of heartbeats.
struct HeartbeatStore(Arc<StoreInner>);

impl HeartbeatStore {
    async fn begin(&self, durability: Durability) -> Result<Tx<'static>> {
        // To open a connection may take longer than a heartbeat, as on a slow link. So it continues after the heartbeat
        // has failed.
        let pool = self.0.heartbeats.pool.clone();
        let opened = self.0.heartbeats.handle()?.spawn(async move { pool.get().await.map(drop) });
        opened.await.map_err(task_failed)?.map_err(from_pool)?;
        self.0.begin_on(&self.0.heartbeats.pool, durability).await
    }
}
