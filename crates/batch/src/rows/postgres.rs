//! Rows in PostgreSQL.
//!
//! A few connections, each used for one transaction at a time; reads are transactions that cannot
//! write. Statements are sent unnamed and nothing is kept in a session, so that a pooler between us
//! and the server may hand out another session for every transaction. Nothing is connected before
//! it is needed.

mod error;
mod key;
mod read;
mod server;
mod shape;
mod statement;
mod value;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use longshore_postgres_address::read;

use super::{Candidate, Described, Row, RowSource, SourceError};
use crate::definition::Candidates;
use server::Server;
use shape::Shapes;

/// A PostgreSQL database as a source of rows.
pub struct PostgresRows {
    server: Server,
    shapes: Shapes,
}

impl PostgresRows {
    /// The database of a URL, as `postgres://user:password@host:5432/orders`; `postgresql:` means
    /// the same. Connects when it is first needed.
    pub fn open(url: &str) -> Result<Self, SourceError> {
        let address = read(url).map_err(error::of_address)?;
        Ok(Self { server: Server::new(address)?, shapes: Shapes::default() })
    }

    /// Does a read that goes by a statement's columns, and once more if those have changed since
    /// they were looked up.
    async fn by_shape<T, F: Future<Output = Result<T, SourceError>>>(
        &self,
        sql: &str,
        read: impl Fn(Arc<[shape::Column]>) -> F,
    ) -> Result<T, SourceError> {
        let known = self.shapes.known(sql);
        let shape = match &known {
            Some(shape) => Arc::clone(shape),
            None => self.shapes.look_up(&self.server, sql).await?,
        };
        let answer = read(Arc::clone(&shape)).await;
        if known.is_none() || !matches!(&answer, Err(error) if !error.is_retryable()) {
            return answer;
        }
        let now = self.shapes.look_up(&self.server, sql).await?;
        if now == shape { answer } else { read(now).await }
    }
}

#[async_trait]
impl RowSource for PostgresRows {
    async fn describe(&self, sql: &str) -> Result<Described, SourceError> {
        read::describe(&self.server, &self.shapes, sql).await
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
        let read = |shape| read::candidates(&self.server, shape, candidates, from, limit);
        self.by_shape(&candidates.sql, read).await
    }

    async fn fetch(
        &self,
        sql: &str,
        params: &[(String, SqlValue)],
    ) -> Result<Vec<Row>, SourceError> {
        read::refuse_changes(sql)?;
        self.by_shape(sql, |shape| read::fetch(&self.server, shape, sql, params)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        write::apply(&self.server, effects).await
    }
}

impl std::fmt::Debug for PostgresRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        write!(f, "PostgresRows({})", self.server)
    }
}
