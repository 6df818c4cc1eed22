//! Runs coalesced acquires and releases: the connection, and the waiters to notify.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, PermitGrant, PermitReply, PermitRequest};
use longshore_core::{PermitId, PoolName, Result};
use redis::cmd;
use tokio::time::Instant;

use crate::batched::BatchCaller;
use crate::connection::{ServerConnection, push_args};
use crate::notifications::{HandedGrant, Notifications};
use crate::registry::{self, PoolEntry};
use crate::script::{ACQUIRE, BATCHED, RELEASE};
use crate::server_info::micros;
use crate::{batched, reply};

#[derive(Debug)]
pub(crate) struct PermitsInner {
    pub(crate) connection: ServerConnection,
    /// Renews permits. A connection is driven by the runtime that opened it: renewals have a thread of their own, and
    /// do not wait for handlers that block the runtime of the other requests.
    pub(crate) renewals: ServerConnection,
    pub(crate) notifications: Arc<Notifications>,
}

impl PermitsInner {
    /// Adds a pool that this process has not seen, or that was created again, to the set of all
    /// pools.
    pub(crate) async fn register_pool(&self, pool: &PoolName, entry: &PoolEntry, created_at: String) {
        if !entry.is_new(&created_at) {
            return;
        }
        let added = self.connection.run(|_| {
            let mut command = cmd("SADD");
            command.arg(registry::POOL_NAMES_KEY).arg(pool.as_str());
            command
        });
        match added.await {
            Ok(()) => entry.set_created_at(created_at),
            // The next request tries again.
            Err(error) => {
                tracing::debug!(%pool, %error, "could not add the pool to the set of all pools");
            }
        }
    }

    /// Runs coalesced requests, and replies to each.
    pub(crate) async fn run(
        &self,
        pool: &PoolName,
        entry: &PoolEntry,
        jobs: Vec<PermitRequest>,
    ) -> Vec<PermitReply> {
        // If the process has further waiters, the first of them get their permits with this reply:
        // sooner than through the channel.
        let (waiting, all_active) = self.notifications.waiter_count(pool);
        match &jobs[..] {
            [PermitRequest::Ask(ask)] if waiting <= 1 => {
                vec![self.acquire_one(pool, entry, ask).await.map(Some)]
            }
            [PermitRequest::Release { ids, late }] if waiting == 0 => {
                vec![self.release_one(entry, ids, *late).await.map(|()| None)]
            }
            many => {
                let done = self.run_batched(pool, entry, many, all_active).await;
                done.unwrap_or_else(|error| PermitRequest::fail_all(jobs.len(), error))
            }
        }
    }

    /// Grants permits to waiters only if all of them are listening: a waiter that learns of its
    /// permit late would keep it from others.
    async fn run_batched(
        &self,
        pool: &PoolName,
        entry: &PoolEntry,
        jobs: &[PermitRequest],
        all_active: bool,
    ) -> Result<Vec<PermitReply>> {
        let (created_at, began) = (entry.created_at(), Instant::now());
        let (created_at, notified, granted, answers): batched::RawBatchReply = self
            .connection
            .script(&BATCHED, &entry.keys, |server, command| {
                let caller =
                    BatchCaller { client: self.notifications.client(), all_active, created_at: &created_at };
                batched::write_args(jobs, &caller, server, command);
            })
            .await?;
        for id in notified.iter().filter_map(|id| id.parse().ok()) {
            self.notifications.notify(pool, id);
        }
        for (id, fence, waited) in granted {
            if let Ok(id) = id.parse() {
                let grant = PermitGrant { fence, waited: Duration::from_micros(waited) };
                self.notifications.hand_over(pool, id, HandedGrant { grant, requested_at: began });
            }
        }
        if !created_at.is_empty() {
            self.register_pool(pool, entry, created_at).await;
        }
        Ok(batched::read_replies(jobs, &answers))
    }

    async fn acquire_one(
        &self,
        pool: &PoolName,
        entry: &PoolEntry,
        ask: &AcquireRequest,
    ) -> Result<AcquireResult> {
        let (id, created_at) = (ask.id.to_string(), entry.created_at());
        let (code, first, second, created_at): reply::RawReply = self
            .connection
            .script(&ACQUIRE, &entry.keys, |server, command| {
                command.arg(&id).arg(ask.max).arg(ask.weight).arg(batched::rank_offset(ask));
                command.arg(micros(ask.ttl)).arg(micros(batched::queue_ttl(ask)));
                command.arg(self.notifications.client()).arg(&*ask.owner);
                command.arg(&server.run_id).arg(server.started_at).arg(u8::from(server.keeps_data));
                command.arg(&created_at);
            })
            .await?;
        self.register_pool(pool, entry, created_at).await;
        reply::parse(code, first, second)
    }

    async fn release_one(&self, entry: &PoolEntry, ids: &[PermitId], late: bool) -> Result<()> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let done = self.connection.script(&RELEASE, &entry.keys, |_, command| {
            let (first, others) = ids.split_first().map_or(("", &[][..]), |(id, more)| (id.as_str(), more));
            command.arg(first).arg(u8::from(late));
            push_args(command, others);
        });
        done.await
    }
}
