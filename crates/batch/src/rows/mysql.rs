//! Rows in MySQL or MariaDB.
//!
//! A few connections, each used for one call at a time. Sessions are read-only, so that functions
//! called by a read cannot write; effects run in a transaction that allows writes. Connects on
//! first use.

mod error;
mod key;
mod read;
mod url;
mod value;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use mysql_async::{Conn, Pool};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::fingerprint::{self, MYSQL};
use super::priority_pass::PriorityPass;
use super::{Candidate, DatabaseFingerprint, Row, RowSource, SourceError, StatementInfo};
use crate::definition::Candidates;

/// Maximum connections: a server has other users as well.
const MAX_CONNECTIONS: usize = 16;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a transaction may take, with its waits for locks.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// A MySQL or MariaDB database as a source of rows.
pub struct MysqlRows {
    pool: Pool,
    /// One permit per call. The pool would count the wait for a connection as part of connecting.
    permits: Semaphore,
    display_name: String,
}

impl MysqlRows {
    /// The database of a URL, such as `mysql://user:password@host:3306/orders`; `mariadb:` is a
    /// synonym. Connects on first use.
    pub fn open(url: &str) -> Result<Self, SourceError> {
        let opts = url::parse_url(url)?;
        let max = opts.pool_opts().constraints().max();
        let display_name = format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port());
        Ok(Self { pool: Pool::new(opts), permits: Semaphore::new(max), display_name })
    }

    /// A connection for exclusive use while its permit is held.
    async fn connection(&self) -> Result<(Conn, SemaphorePermit<'_>), SourceError> {
        let permit = self.permits.acquire().await;
        let permit =
            permit.map_err(|_| SourceError::Unavailable("the connection pool is closed".to_owned()))?;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.live_connection()).await;
        let conn = connected.map_err(|_| error::no_answer(&self.display_name, CONNECT_TIMEOUT))?;
        Ok((conn.map_err(|error| error::of_connect(&self.display_name, error))?, permit))
    }

    /// Skips idle connections that the server has closed.
    async fn live_connection(&self) -> mysql_async::Result<Conn> {
        let mut idle = MAX_CONNECTIONS;
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
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError> {
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

    fn in_pass(&self, candidates: &Candidates, pass: PriorityPass) -> Option<Candidates> {
        let column = candidates.priority.as_deref()?;
        Some(pass.select(candidates, &format!("`{}`", column.replace('`', "``"))))
    }

    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        let (mut conn, _permit) = self.connection().await?;
        read::fetch(&mut conn, sql, params).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        let (mut conn, _permit) = self.connection().await?;
        let done = tokio::time::timeout(TRANSACTION_TIMEOUT, write::apply(&mut conn, effects)).await;
        done.map_err(|_| error::too_slow(TRANSACTION_TIMEOUT))?
    }

    async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        fingerprint::by_queries(self, &MYSQL).await
    }
}

impl std::fmt::Debug for MysqlRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may contain a password.
        write!(f, "MysqlRows({})", self.display_name)
    }
}
