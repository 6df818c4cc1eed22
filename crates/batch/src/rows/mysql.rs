//! Rows in MySQL or MariaDB.
//!
//! A few connections, each used for one call at a time. A session begins read-only, so that nothing
//! a read calls can write; effects run in a transaction that says otherwise. Nothing is connected
//! before it is needed.

mod address;
mod error;
mod key;
mod read;
mod value;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use mysql_async::{Conn, Pool};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Candidate, Described, Row, RowSource, SourceError};
use crate::definition::Candidates;

/// Calls under way at once: a server has other users as well.
const CONNECTIONS: usize = 16;
/// How long a server may take to let us in.
const PATIENCE: Duration = Duration::from_secs(10);

/// A MySQL or MariaDB database as a source of rows.
pub struct MysqlRows {
    pool: Pool,
    /// Room for a call. The pool would count its waiting as part of connecting.
    room: Semaphore,
    shown: String,
}

impl MysqlRows {
    /// The database of a URL, as `mysql://user:password@host:3306/orders`; `mariadb:` means the
    /// same. Connects when it is first needed.
    pub fn open(url: &str) -> Result<Self, SourceError> {
        let opts = address::read(url)?;
        let most = opts.pool_opts().constraints().max();
        let shown = format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port());
        Ok(Self { pool: Pool::new(opts), room: Semaphore::new(most), shown })
    }

    /// A connection that is nobody else's while it is held.
    async fn connection(&self) -> Result<(Conn, SemaphorePermit<'_>), SourceError> {
        let permit = self.room.acquire().await;
        let permit = permit.map_err(|_| SourceError::Away("it is being closed".to_owned()))?;
        let connected = tokio::time::timeout(PATIENCE, self.live()).await;
        let conn = connected.map_err(|_| error::silent(&self.shown, PATIENCE))?;
        Ok((conn.map_err(|error| error::of_connect(&self.shown, error))?, permit))
    }

    /// Passes over connections that were closed by the other side while they were idle.
    async fn live(&self) -> mysql_async::Result<Conn> {
        let mut idle = CONNECTIONS;
        loop {
            match self.pool.get_conn().await {
                Err(error) if idle > 0 && error::was_closed(&error) => idle -= 1,
                answer => return answer,
            }
        }
    }
}

#[async_trait]
impl RowSource for MysqlRows {
    async fn describe(&self, sql: &str) -> Result<Described, SourceError> {
        let (mut conn, _permit) = self.connection().await?;
        read::describe(&mut conn, sql).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        let (mut conn, _permit) = self.connection().await?;
        read::count(&mut conn, candidates).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        let (mut conn, _permit) = self.connection().await?;
        read::candidates(&mut conn, candidates, from, limit).await
    }

    async fn fetch(
        &self,
        sql: &str,
        params: &[(String, SqlValue)],
    ) -> Result<Vec<Row>, SourceError> {
        let (mut conn, _permit) = self.connection().await?;
        read::fetch(&mut conn, sql, params).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        let (mut conn, _permit) = self.connection().await?;
        write::apply(&mut conn, effects).await
    }
}

impl std::fmt::Debug for MysqlRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        write!(f, "MysqlRows({})", self.shown)
    }
}
