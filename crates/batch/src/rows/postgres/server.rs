//! The connections to a server, and how a statement gets there and back.
//!
//! A connection that the other side closed while it was idle is passed over: nothing was begun on it.

use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::Timeouts;
use longshore::SqlValue;
use longshore_postgres_address::{Address, ConnectionManager, Pool, PoolError, PooledConnection};
use tokio_postgres::{Error, Row};

use super::error;
use super::value::{self, Bound};
use crate::rows::SourceError;
use crate::rows::positional::Positional;

/// Calls under way at once: a server has other users as well.
const CONNECTIONS: usize = 16;
/// Connections that are passed over because they were closed. Few: once one has failed the others have
/// noticed, too, and a statement that takes the server down must not do so again and again.
pub(super) const STALE: u32 = 3;
/// How long a server may take to let us in.
const PATIENCE: Duration = Duration::from_secs(10);
/// A read must not write, whatever functions it calls. Dates come as ISO has them, whatever the
/// server is set to.
const BEGIN: &str = "BEGIN READ ONLY; SET LOCAL datestyle TO 'ISO'";

/// A server's database.
pub(super) struct Server {
    pool: Pool,
    shown: String,
}

impl Server {
    pub(super) fn new(address: Address) -> Result<Self, SourceError> {
        let shown = address.shown();
        let manager = ConnectionManager::new(&address).map_err(error::of_address)?;
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            // The wait for room is no fault of the server's.
            .timeouts(Timeouts { wait: None, create: Some(PATIENCE), recycle: Some(PATIENCE) })
            .runtime(Runtime::Tokio1);
        let pool = pool.build().map_err(|error| SourceError::Data(error.to_string()))?;
        Ok(Self { pool, shown })
    }

    /// A connection that is nobody else's while it is held.
    pub(super) async fn connection(&self) -> Result<PooledConnection, SourceError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error::of_connect(&self.shown, &error),
            PoolError::Timeout(_) => error::silent(&self.shown, PATIENCE),
            other => SourceError::Away(format!("{}: {other}", self.shown)),
        })
    }

    /// The rows of a statement that only reads, in a transaction of its own.
    pub(super) async fn read(
        &self,
        statement: &Positional,
        values: &[&SqlValue],
    ) -> Result<Vec<Row>, SourceError> {
        let mut stale = STALE;
        loop {
            let connection = self.connection().await?;
            match read(&connection, statement, values).await {
                Err(error) if stale > 0 && error::was_closed(&error) => stale -= 1,
                answer => return answer.map_err(|error| error::of_statement(statement, &error)),
            }
        }
    }
}

/// All three are sent before the first is answered: a read costs one round trip. If the first fails
/// the others find no connection, or a transaction that is over and done with.
async fn read(
    connection: &PooledConnection,
    statement: &Positional,
    values: &[&SqlValue],
) -> Result<Vec<Row>, Error> {
    let values: Vec<Bound<'_>> = values.iter().map(|value| Bound(value)).collect();
    let params = value::untyped(&values);
    let (begun, rows, ended) = tokio::join!(
        connection.batch_execute(BEGIN),
        connection.query_typed(&statement.sql, &params),
        connection.batch_execute("COMMIT"),
    );
    begun?;
    let rows = rows?;
    ended.map(|()| rows)
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}
