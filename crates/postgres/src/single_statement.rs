//! Operations that are a single statement in autocommit mode: one round trip.
//!
//! Most claims, sends and finishes are plain, and one server function does and counts all of it
//! (`migrations/001_unit_functions.sql`). If the function finds a case that it does not handle, it changes
//! nothing, and the operation runs as a transaction of several statements.
//!
//! Dropping the future does not undo such a statement, so each runs to completion together with its
//! post-commit work ([`StoreInner::run_to_completion`]). A dropped future is thus like a lost reply
//! to a commit: a repeated send or finish is recognised, and the next heartbeat reports units of a
//! claim that its worker did not receive.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Error, Result};
use longshore_postgres_url::{Pool, PooledConnection};
use tokio_postgres::Row;

use crate::error::{Translate, from_pool, is_conflict, is_read_only};
use crate::store::{StoreInner, retry_transaction};
use crate::streams::Stream;
use crate::typed_params::{SqlParam, typed};

/// A connection that returns to the pool only after the server has replied to everything. If it is
/// dropped earlier, it is closed: its next user would receive the outstanding replies.
pub(crate) struct ConnGuard {
    connection: Option<PooledConnection>,
    /// Time limit of a statement.
    limit: Duration,
}

impl ConnGuard {
    /// Takes a connection from the pool.
    pub(crate) async fn acquire(pool: &Pool) -> Result<Self> {
        let connection = Some(pool.get().await.map_err(from_pool)?);
        Ok(Self { connection, limit: pool.timeouts().wait.unwrap_or(Duration::MAX) })
    }

    /// The connection.
    pub(crate) fn client(&self) -> Result<&PooledConnection> {
        self.connection.as_ref().ok_or_else(|| Error::unavailable("the connection was returned to the pool"))
    }

    /// Returns the connection to the pool, after the last reply.
    pub(crate) fn release(mut self) {
        self.connection = None;
    }

    /// Runs the last statement within the pool's time limit, and returns the connection to the pool unless the server is
    /// read-only. Without the limit, a link that loses everything would keep the connection for ever if the caller is gone.
    pub(crate) async fn query_and_release(self, sql: &str, params: &[&dyn SqlParam]) -> Result<Vec<Row>> {
        let (limit, params) = (self.limit, typed(params));
        let answer = tokio::time::timeout(limit, self.client()?.query_typed(sql, &params)).await;
        let late = |_| Error::timed_out(format!("PostgreSQL did not answer within {limit:?}"));
        let answer = answer.map_err(late)?.or_translate();
        if !answer.as_ref().is_err_and(is_read_only) {
            self.release();
        }
        answer
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        if let Some(client) = self.connection.take() {
            drop(PooledConnection::take(client));
        }
    }
}

impl StoreInner {
    /// Runs a statement in autocommit mode and retries it after a conflict with another
    /// transaction.
    pub(crate) async fn query_autocommit(&self, sql: &str, params: &[&dyn SqlParam]) -> Result<Vec<Row>> {
        self.query_autocommit_on(&self.pool, sql, params).await
    }

    /// Runs a statement in autocommit mode on one of these connections.
    pub(crate) async fn query_autocommit_on(
        &self,
        connections: &Pool,
        sql: &str,
        params: &[&dyn SqlParam],
    ) -> Result<Vec<Row>> {
        for _ in 0..10 {
            match query_once(connections, sql, params).await {
                Err(error) if is_conflict(&error) => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
        query_once(connections, sql, params).await
    }

    /// The streams with these numbers, usually from the cache.
    pub(crate) async fn streams_by_num(&self, nums: BTreeSet<i64>) -> Result<HashMap<i64, Arc<Stream>>> {
        if let Some(all) = self.streams.cached_by_num(&nums) {
            return Ok(all);
        }
        let found = retry_transaction!(self, Read, tx => self.streams.by_num(&mut tx, nums.clone()));
        found.await.map(|(found, _)| found)
    }
}

async fn query_once(connections: &Pool, sql: &str, params: &[&dyn SqlParam]) -> Result<Vec<Row>> {
    ConnGuard::acquire(connections).await?.query_and_release(sql, params).await
}
