//! Rows in PostgreSQL.
//!
//! A few connections, each used for one transaction at a time; reads are read-only transactions.
//! Statements are unnamed and sessions have no state, so that a pooler may assign another session
//! to every transaction. Connects on first use.

mod columns;
mod error;
mod identity;
mod key;
mod read;
mod server;

mod statement;
mod value;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use longshore_postgres_url::parse;

use super::priority_pass::{PriorityPass, quoted};
use super::{Candidate, DatabaseFingerprint, Row, RowSource, SourceError, StatementInfo};
use crate::definition::Candidates;
use columns::ColumnCache;
use server::PostgresServer;

/// A PostgreSQL database as a source of rows.
pub struct PostgresRows {
    server: PostgresServer,
    column_cache: ColumnCache,
}

impl PostgresRows {
    /// The database of a URL, such as `postgres://user:password@host:5432/orders`; `postgresql:` is
    /// a synonym. Connects on first use.
    pub fn open(url: &str) -> Result<Self, SourceError> {
        let address = parse(url).map_err(error::of_url)?;
        Ok(Self { server: PostgresServer::new(address)?, column_cache: ColumnCache::default() })
    }

    /// Runs a read that depends on the statement's columns. If it fails with cached columns and
    /// they have changed since, runs it once more.
    async fn with_columns<T, F: Future<Output = Result<T, SourceError>>>(
        &self,
        sql: &str,
        read: impl Fn(Arc<[columns::Column]>) -> F,
    ) -> Result<T, SourceError> {
        let cached = self.column_cache.cached(sql);
        let columns = match &cached {
            Some(columns) => Arc::clone(columns),
            None => self.column_cache.look_up(&self.server, sql).await?,
        };
        let answer = read(Arc::clone(&columns)).await;
        if cached.is_none() || !matches!(&answer, Err(error) if !error.is_retryable()) {
            return answer;
        }
        let now = self.column_cache.look_up(&self.server, sql).await?;
        if now == columns { answer } else { read(now).await }
    }
}

#[async_trait]
impl RowSource for PostgresRows {
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError> {
        read::describe(&self.server, &self.column_cache, sql).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        read::count(&self.server, candidates).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        let read = |columns| read::candidates(&self.server, columns, candidates, from, limit);
        self.with_columns(&candidates.sql, read).await
    }

    fn in_pass(&self, candidates: &Candidates, pass: PriorityPass) -> Option<Candidates> {
        let column = candidates.priority.as_deref()?;
        Some(pass.select(candidates, &quoted(column)))
    }

    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        read::reject_writes(sql)?;
        self.with_columns(sql, |columns| read::fetch(&self.server, columns, sql, params)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        write::apply(&self.server, effects).await
    }

    async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        self.server.fingerprint().await
    }
}

impl std::fmt::Debug for PostgresRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may contain a password.
        write!(f, "PostgresRows({})", self.server)
    }
}
