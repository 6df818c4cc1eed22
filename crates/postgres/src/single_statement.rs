//! Verbs that are a single statement, sent alone: one round trip, and the server commits by itself.
//!
//! Most claims, sends and ends are plain, and a function of the server does and counts all of each
//! (`migrations/003_plans.sql`). Where it finds that there is more to it, it does nothing, and the
//! verb goes the long way, with a transaction of several statements.
//!
//! Whoever gives up on such a statement cannot take it back, so each is run with what follows from it
//! to its end ([`StoreInner::run_to_completion`]). That is as with a commit whose answer is lost: a send or an end
//! that is repeated is recognised, and a claim that nobody heard of shows in the next beat.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::{Error, Result};
use longshore_postgres_address::{Pool, PooledConnection};
use tokio_postgres::Row;

use crate::error::{Translate, from_pool, is_conflict};
use crate::store::{StoreInner, retry_transaction};
use crate::streams::Stream;
use crate::typed_params::{Param, typed};

/// A connection that is given back only once all it was asked is answered. One that is dropped
/// before is closed: whoever had it next would wait for its answers.
pub(crate) struct ConnGuard(Option<PooledConnection>);

impl ConnGuard {
    /// From the pool.
    pub(crate) async fn acquire(pool: &Pool) -> Result<Self> {
        Ok(Self(Some(pool.get().await.map_err(from_pool)?)))
    }

    /// To be asked.
    pub(crate) fn client(&self) -> Result<&PooledConnection> {
        self.0.as_ref().ok_or_else(|| Error::unavailable("the connection was given back"))
    }

    /// All is answered.
    pub(crate) fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(PooledConnection::take(client));
        }
    }
}

impl StoreInner {
    /// Runs a statement that is a transaction of its own, again if others got in the way.
    pub(crate) async fn query_autocommit(
        &self,
        sql: &str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>> {
        for _ in 0..10 {
            match self.query_autocommit_once(sql, params).await {
                Err(error) if is_conflict(&error) => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
        self.query_autocommit_once(sql, params).await
    }

    async fn query_autocommit_once(&self, sql: &str, params: &[&dyn Param]) -> Result<Vec<Row>> {
        let guard = ConnGuard::acquire(&self.pool).await?;
        let answer = guard.client()?.query_typed(sql, &typed(params)).await;
        guard.release();
        answer.or_translate()
    }

    /// The streams with these numbers, mostly without asking the server.
    pub(crate) async fn streams_by_num(
        &self,
        nums: BTreeSet<i64>,
    ) -> Result<HashMap<i64, Arc<Stream>>> {
        if let Some(all) = self.streams.cached_by_num(&nums) {
            return Ok(all);
        }
        let found =
            retry_transaction!(self, Read, tx => self.streams.by_num(&mut tx, nums.clone()));
        found.await.map(|(found, _)| found)
    }
}
