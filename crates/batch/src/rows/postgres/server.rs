//! Connections to a server, and how a read is sent.
//!
//! A connection that the server closed while it was idle is skipped: no statement has run on it. The server answers
//! BEGIN at once, whatever follows, so a connection without that answer is dead, and only that call waited for it. If a
//! call is dropped, its connection is closed: the statement may still run.
//!
//! A new connection must lead to the database of the first one. A connection keeps to its server, unless a pooler is
//! between them; [`PostgresServer::fingerprint`] asks again.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::Timeouts;
use longshore::SqlValue;
use longshore_postgres_url::{ConnectionManager, Pool, PoolError, PooledConnection, PostgresUrl};
use tokio::time::timeout;
use tokio_postgres::{Error, Row};

use super::error;
use super::identity::{self, FirstDatabase, IdentityError};
use super::value::{self, TextParam};
use crate::rows::placeholders::PositionalStatement;
use crate::rows::{DatabaseFingerprint, SourceError};

/// Maximum connections: a server has other users as well.
const MAX_CONNECTIONS: usize = 16;
/// Closed connections skipped per call. Few: once one has failed, the pool notices the others too,
/// and a statement that crashes the server must not be repeated again and again.
pub(super) const MAX_STALE_CONNECTIONS: u32 = 3;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may take to answer BEGIN.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A read must not write, whatever functions it calls. Dates are in ISO format, whatever the
/// server's setting.
const BEGIN_READ: &str = "BEGIN READ ONLY; SET LOCAL datestyle TO 'ISO'";

/// A database of a server.
pub(super) struct PostgresServer {
    pool: Pool,
    display_name: String,
    first: FirstDatabase,
}

impl PostgresServer {
    pub(super) fn new(address: PostgresUrl) -> Result<Self, SourceError> {
        let display_name = address.host_and_port();
        let manager = ConnectionManager::new(&address).map_err(error::of_url)?;
        let pool = Pool::builder(manager)
            .max_size(MAX_CONNECTIONS)
            // The wait for a free connection has no timeout: the server is not at fault.
            .timeouts(Timeouts { wait: None, create: Some(CONNECT_TIMEOUT), recycle: Some(CONNECT_TIMEOUT) })
            .runtime(Runtime::Tokio1);
        let pool = pool.build().map_err(|error| SourceError::Data(error.to_string()))?;
        Ok(Self { pool, display_name, first: FirstDatabase::default() })
    }

    /// A connection for exclusive use. Closed on drop unless [`ExclusiveConnection::release`] was called.
    pub(super) async fn connection(&self) -> Result<ExclusiveConnection, SourceError> {
        let connection = self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error::of_connect(&self.display_name, &error),
            PoolError::Timeout(_) => error::no_answer(&self.display_name, CONNECT_TIMEOUT),
            other => SourceError::Unavailable(format!("{}: {other}", self.display_name)),
        })?;
        let is_new = PooledConnection::metrics(&connection).recycle_count == 0;
        let connection = ExclusiveConnection { connection, is_answered: false };
        if is_new {
            self.identify(&connection).await.map_err(|error| self.identity_error(error))??;
        }
        Ok(connection)
    }

    /// What identifies the database now; an error if it is another than at first.
    pub(super) async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        let mut stale = MAX_STALE_CONNECTIONS;
        loop {
            let connection = self.connection().await?;
            match self.identify(&connection).await {
                Err(IdentityError::Server(error)) if stale > 0 && error::was_closed(&error) => stale -= 1,
                Err(error) => return Err(self.identity_error(error)),
                Ok(found) => {
                    let found = found?;
                    connection.release();
                    return Ok(found);
                }
            }
        }
    }

    async fn identify(
        &self,
        connection: &PooledConnection,
    ) -> Result<Result<Option<DatabaseFingerprint>, SourceError>, IdentityError> {
        let found = identity::read(connection).await?;
        Ok(found.as_ref().map_or(Ok(()), |found| self.first.require(found)).map(|()| found))
    }

    fn identity_error(&self, error: IdentityError) -> SourceError {
        match error {
            IdentityError::NoAnswer => self.no_answer(),
            IdentityError::Server(error) => error::of_run(&error),
        }
    }

    /// The error of a connection on which BEGIN was not answered.
    pub(super) fn no_answer(&self) -> SourceError {
        error::no_answer(&self.display_name, ANSWER_TIMEOUT)
    }

    /// Runs a read in a transaction of its own.
    pub(super) async fn read(
        &self,
        statement: &PositionalStatement,
        values: &[&SqlValue],
    ) -> Result<Vec<Row>, SourceError> {
        let mut stale = MAX_STALE_CONNECTIONS;
        loop {
            let connection = self.connection().await?;
            match read(&connection, statement, values).await {
                Err(ReadError::NoAnswer) => return Err(self.no_answer()),
                Err(ReadError::Server(error)) if stale > 0 && error::was_closed(&error) => stale -= 1,
                Err(ReadError::Server(error)) => {
                    connection.release();
                    return Err(error::of_statement(statement, &error));
                }
                Ok(rows) => {
                    connection.release();
                    return Ok(rows);
                }
            }
        }
    }
}

/// A connection that is used by one call.
pub(super) struct ExclusiveConnection {
    connection: PooledConnection,
    is_answered: bool,
}

impl ExclusiveConnection {
    /// Returns the connection to the pool: all its statements are answered.
    pub(super) fn release(mut self) {
        self.is_answered = true;
    }
}

impl Drop for ExclusiveConnection {
    fn drop(&mut self) {
        if !self.is_answered {
            self.connection.close();
        }
    }
}

impl Deref for ExclusiveConnection {
    type Target = PooledConnection;

    fn deref(&self) -> &PooledConnection {
        &self.connection
    }
}

impl DerefMut for ExclusiveConnection {
    fn deref_mut(&mut self) -> &mut PooledConnection {
        &mut self.connection
    }
}

/// Why a read failed.
enum ReadError {
    /// BEGIN was not answered in time.
    NoAnswer,
    Server(Error),
}

/// Sends BEGIN, the query and COMMIT together: a read costs one round trip. If BEGIN fails, the
/// others find no connection or an ended transaction.
async fn read(
    connection: &PooledConnection,
    statement: &PositionalStatement,
    values: &[&SqlValue],
) -> Result<Vec<Row>, ReadError> {
    let values: Vec<TextParam<'_>> = values.iter().map(|value| TextParam(value)).collect();
    let params = value::untyped_params(&values);
    let begin = async {
        let begun = timeout(ANSWER_TIMEOUT, connection.batch_execute(BEGIN_READ)).await;
        // The other statements are answered after BEGIN, if it is.
        if begun.is_err() { Err(ReadError::NoAnswer) } else { Ok(begun) }
    };
    let query = async { Ok(connection.query_typed(&statement.sql, &params).await) };
    let commit = async { Ok(connection.batch_execute("COMMIT").await) };
    let (begun, rows, ended) = tokio::try_join!(begin, query, commit)?;
    let rows = match begun {
        Ok(Err(error)) => Err(error),
        _ => rows.and_then(|rows| ended.map(|()| rows)),
    };
    rows.map_err(ReadError::Server)
}

impl std::fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.display_name)
    }
}
