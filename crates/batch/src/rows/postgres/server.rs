//! Connections to a server, and how a read is sent.
//!
//! A connection that the server closed while it was idle is skipped: no statement has run on it.

use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::Timeouts;
use longshore::SqlValue;
use longshore_postgres_url::{ConnectionManager, Pool, PoolError, PooledConnection, PostgresUrl};
use tokio_postgres::{Error, Row};

use super::error;
use super::value::{self, TextParam};
use crate::rows::SourceError;
use crate::rows::placeholders::PositionalStatement;

/// Maximum connections: a server has other users as well.
const MAX_CONNECTIONS: usize = 16;
/// Closed connections skipped per call. Few: once one has failed, the pool notices the others too,
/// and a statement that crashes the server must not be repeated again and again.
pub(super) const MAX_STALE_CONNECTIONS: u32 = 3;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A read must not write, whatever functions it calls. Dates are in ISO format, whatever the
/// server's setting.
const BEGIN_READ: &str = "BEGIN READ ONLY; SET LOCAL datestyle TO 'ISO'";

/// A database of a server.
pub(super) struct PostgresServer {
    pool: Pool,
    display_name: String,
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
        Ok(Self { pool, display_name })
    }

    /// A connection for exclusive use while it is held.
    pub(super) async fn connection(&self) -> Result<PooledConnection, SourceError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error::of_connect(&self.display_name, &error),
            PoolError::Timeout(_) => error::connect_timeout(&self.display_name, CONNECT_TIMEOUT),
            other => SourceError::Unavailable(format!("{}: {other}", self.display_name)),
        })
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
                Err(error) if stale > 0 && error::was_closed(&error) => stale -= 1,
                answer => return answer.map_err(|error| error::of_statement(statement, &error)),
            }
        }
    }
}

/// Sends BEGIN, the query and COMMIT together: a read costs one round trip. If BEGIN fails, the
/// others find no connection or an ended transaction.
async fn read(
    connection: &PooledConnection,
    statement: &PositionalStatement,
    values: &[&SqlValue],
) -> Result<Vec<Row>, Error> {
    let values: Vec<TextParam<'_>> = values.iter().map(|value| TextParam(value)).collect();
    let params = value::untyped_params(&values);
    let (begun, rows, ended) = tokio::join!(
        connection.batch_execute(BEGIN_READ),
        connection.query_typed(&statement.sql, &params),
        connection.batch_execute("COMMIT"),
    );
    begun?;
    let rows = rows?;
    ended.map(|()| rows)
}

impl std::fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.display_name)
    }
}
