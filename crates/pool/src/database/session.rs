//! One worker's connection. When it is lost, the session reconnects with growing pauses, and
//! repeats a statement only if it cannot take effect twice.

use std::time::{Duration, Instant};

use longshore_databases::{
    Connection, ConnectionConfig, DatabaseTarget, DbError, Deadline, Reason, RowsWanted, Statement,
    StatementResult, sql,
};

/// Delay before the next attempt to connect; it doubles from the first to the second value.
const RECONNECT_DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// One worker's connection.
pub(super) struct Session {
    target: DatabaseTarget,
    config: ConnectionConfig,
    connection: Option<Box<dyn Connection>>,
    last_used: Instant,
    /// An error without a code occurred, so the connection may be lost.
    suspect: bool,
}

impl Session {
    /// Connects, unless the options are lazy. Only one attempt: a worker that cannot start reports
    /// it.
    pub(super) fn open(target: DatabaseTarget, config: ConnectionConfig) -> Result<Self, DbError> {
        let deadline = Deadline::until(Instant::now() + config.reconnect);
        let connection = match config.lazy {
            true => None,
            false => Some(target.connect(&config, &deadline)?),
        };
        Ok(Self { target, config, connection, last_used: Instant::now(), suspect: false })
    }

    /// Checks that the database responds.
    pub(super) fn ping(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        self.with_connection(deadline, true, |connection| connection.ping(deadline))
    }

    /// Runs one statement.
    pub(super) fn run(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        reject_transaction_control(statement)?;
        if want == RowsWanted::All && sql::modifies_rows(&statement.sql) {
            // If the row limit is exceeded after the change, the transaction is rolled back.
            let mut results = self.transaction(std::slice::from_ref(statement), deadline)?;
            return Ok(results.pop().unwrap_or_default());
        }
        let (limits, limit) = (self.config.limits(), self.config.statement_timeout);
        self.with_connection(deadline, sql::is_read_only(&statement.sql), |connection| {
            let result = connection.run(statement, want, limits, &deadline.with_limit(limit));
            if connection.in_transaction() {
                let left = DbError::new(
                    Reason::Refused,
                    "the statement left a transaction open; use db.transaction",
                );
                return Err(roll_back(connection, left));
            }
            // It ran before its first row turned out to be too large.
            result.map_err(|mut error| {
                error.outcome_unknown |=
                    error.reason == Reason::SizeLimit && !sql::is_read_only(&statement.sql);
                error
            })
        })
    }

    /// Runs all statements, or none.
    pub(super) fn transaction(
        &mut self,
        statements: &[Statement],
        deadline: &Deadline,
    ) -> Result<Vec<StatementResult>, DbError> {
        for (at, statement) in statements.iter().enumerate() {
            reject_transaction_control(statement).map_err(|error| error.at(at))?;
        }
        let config = self.config.clone();
        self.with_connection(deadline, false, |connection| {
            for (at, statement) in statements.iter().enumerate() {
                if let Some(reason) = connection.refuses_in_transaction(&statement.sql) {
                    return Err(DbError::new(Reason::Refused, reason).at(at));
                }
            }
            connection.begin(deadline).map_err(DbError::unsent)?;
            let results = run_all(connection, statements, &config, deadline);
            // A caller that was told of a timeout must not find the transaction committed.
            let results = results.and_then(|results| match deadline.stop_reason() {
                Some(reason) => Err(reason),
                None => Ok(results),
            });
            match results {
                Ok(results) => match connection.commit(deadline) {
                    Ok(()) => Ok(results),
                    Err(error) => Err(roll_back(connection, error)),
                },
                Err(error) => Err(roll_back(connection, error.undone())),
            }
        })
    }

    /// Runs `work` with a working connection. If the connection was lost, repeats it once on a new
    /// one, provided that nothing was sent or the work is `repeatable`.
    fn with_connection<T>(
        &mut self,
        deadline: &Deadline,
        repeatable: bool,
        mut work: impl FnMut(&mut dyn Connection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let mut may_retry = true;
        loop {
            let connection = self.live_connection(deadline)?;
            let answer = work(connection);
            self.last_used = Instant::now();
            let Err(error) = answer else { return answer };
            self.suspect = error.code.is_none();
            if error.is_broken() {
                self.drop_connection();
            }
            let lost = error.reason == Reason::Lost && (repeatable || !error.sent);
            if !(lost && may_retry) {
                return Err(error);
            }
            tracing::debug!(database = ?self.target, %error, "the connection was lost; retrying once");
            may_retry = false;
        }
    }

    /// Returns a connection that works, as far as can be known; reconnects if needed.
    fn live_connection(&mut self, deadline: &Deadline) -> Result<&mut dyn Connection, DbError> {
        let idle = self.last_used.elapsed() >= self.config.check_after;
        let dead = match &mut self.connection {
            Some(connection) if connection.is_closed() => true,
            Some(connection) if idle || self.suspect => connection.ping(deadline).is_err(),
            _ => false,
        };
        if dead {
            self.drop_connection();
        }
        self.suspect = false;
        if self.connection.is_none() {
            self.connection = Some(self.reconnect(deadline)?);
        }
        match &mut self.connection {
            Some(connection) => Ok(&mut **connection),
            None => Err(DbError::new(Reason::Unreachable, "no connection")),
        }
    }

    /// Connects, with growing pauses, until it succeeds or the time is over.
    fn reconnect(&self, deadline: &Deadline) -> Result<Box<dyn Connection>, DbError> {
        let deadline = deadline.with_limit(Some(self.config.reconnect));
        let mut pause = RECONNECT_DELAYS.0;
        loop {
            let error = match self.target.connect(&self.config, &deadline) {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            tracing::debug!(database = ?self.target, %error, "cannot connect");
            // A permanent error, or one for which no time is left, is returned as it is.
            if !error.retryable || deadline.sleep(pause).is_err() {
                return Err(error);
            }
            pause = (pause * 2).min(RECONNECT_DELAYS.1);
        }
    }

    fn drop_connection(&mut self) {
        self.connection = None;
        self.suspect = false;
    }
}

fn run_all(
    connection: &mut dyn Connection,
    statements: &[Statement],
    config: &ConnectionConfig,
    deadline: &Deadline,
) -> Result<Vec<StatementResult>, DbError> {
    let mut results = Vec::with_capacity(statements.len());
    let mut limits = config.limits();
    for (at, statement) in statements.iter().enumerate() {
        let deadline = deadline.with_limit(config.statement_timeout);
        let result = connection.run(statement, RowsWanted::All, limits, &deadline);
        let result = result.and_then(|result| check_expected_rows(statement, result));
        let result = result.map_err(|error| error.at(at))?;
        // The limits apply to all statements together.
        limits.rows = limits.rows.saturating_sub(result.table.rows.len());
        limits.bytes = limits.bytes.saturating_sub(result.table.size());
        results.push(result);
    }
    Ok(results)
}

fn check_expected_rows(statement: &Statement, result: StatementResult) -> Result<StatementResult, DbError> {
    match statement.expect_rows {
        Some(rows) if rows != result.affected.unwrap_or(0) => {
            let message = format!("{} rows instead of {rows}", result.affected.unwrap_or(0));
            Err(DbError::new(Reason::ExpectedRows, message))
        }
        _ => Ok(result),
    }
}

/// Rolls back after an error. If that fails, the connection is not used again, and the database
/// rolls back when it notices.
fn roll_back(connection: &mut dyn Connection, error: DbError) -> DbError {
    if error.is_broken() {
        return error;
    }
    match connection.rollback() {
        Ok(()) => error,
        Err(_) => error.on_broken_connection(),
    }
}

fn reject_transaction_control(statement: &Statement) -> Result<(), DbError> {
    if sql::controls_transaction(&statement.sql) {
        let message = "use db.transaction to begin and end transactions";
        return Err(DbError::new(Reason::Refused, message));
    }
    Ok(())
}
