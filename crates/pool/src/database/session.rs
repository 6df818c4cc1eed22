//! One worker's connection. When it is lost, the session reconnects with growing pauses, and
//! repeats a statement only if it cannot take effect twice.

use std::time::{Duration, Instant};

use super::deadline::Watch;
use super::driver::{Connection, Reply, Target};
use super::error::{DbError, Reason};
use super::options::Habits;
use super::row_collector::Want;
use super::sql;
use super::statement::Statement;

/// Delay before the next attempt to connect; it doubles from the first to the second value.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// One worker's connection.
pub(super) struct Session {
    target: Target,
    habits: Habits,
    connection: Option<Box<dyn Connection>>,
    used: Instant,
    /// An error without a code occurred, so the connection may be lost.
    doubtful: bool,
}

impl Session {
    /// Connects, unless the options are lazy. Only one attempt: a worker that cannot start reports
    /// it.
    pub(super) fn open(target: Target, habits: Habits) -> Result<Self, DbError> {
        let watch = Watch::until(Instant::now() + habits.reconnect);
        let connection = match habits.lazy {
            true => None,
            false => Some(target.connect(&habits, &watch)?),
        };
        Ok(Self { target, habits, connection, used: Instant::now(), doubtful: false })
    }

    /// Checks that the database responds.
    pub(super) fn ping(&mut self, watch: &Watch) -> Result<(), DbError> {
        self.with(watch, true, |connection| connection.ping(watch))
    }

    /// Runs one statement.
    pub(super) fn run(
        &mut self,
        statement: &Statement,
        want: Want,
        watch: &Watch,
    ) -> Result<Reply, DbError> {
        refuse_bounds(statement)?;
        if want == Want::All && sql::changes(&statement.sql) {
            // If the row limit is exceeded after the change, the transaction is rolled back.
            let mut replies = self.transaction(std::slice::from_ref(statement), watch)?;
            return Ok(replies.pop().unwrap_or_default());
        }
        let (bounds, limit) = (self.habits.bounds(), self.habits.statement_timeout);
        self.with(watch, sql::reads(&statement.sql), |connection| {
            let reply = connection.run(statement, want, bounds, &watch.narrowed(limit));
            if connection.in_transaction() {
                let left =
                    DbError::new(Reason::Refused, "it left a transaction open; use db.transaction");
                return Err(take_back(connection, left));
            }
            // It ran before its first row turned out to be too large.
            reply.map_err(|error| match error.reason {
                Reason::SizeLimit if !sql::reads(&statement.sql) => {
                    DbError { outcome_unknown: true, ..error }
                }
                _ => error,
            })
        })
    }

    /// Runs all statements, or none.
    pub(super) fn transaction(
        &mut self,
        statements: &[Statement],
        watch: &Watch,
    ) -> Result<Vec<Reply>, DbError> {
        for (at, statement) in statements.iter().enumerate() {
            refuse_bounds(statement).map_err(|error| error.at(at))?;
        }
        let habits = self.habits.clone();
        self.with(watch, false, |connection| {
            for (at, statement) in statements.iter().enumerate() {
                if let Some(why) = connection.refuses_in_transaction(&statement.sql) {
                    return Err(DbError::new(Reason::Refused, why).at(at));
                }
            }
            connection.begin(watch).map_err(DbError::unsent)?;
            let replies = run_all(connection, statements, &habits, watch);
            // A caller that was told of a timeout must not find the transaction committed.
            let replies = replies.and_then(|replies| match watch.over_because() {
                Some(why) => Err(why),
                None => Ok(replies),
            });
            match replies {
                Ok(replies) => match connection.commit(watch) {
                    Ok(()) => Ok(replies),
                    Err(error) => Err(take_back(connection, error)),
                },
                Err(error) => Err(take_back(connection, error.undone())),
            }
        })
    }

    /// Runs `work` with a working connection. If the connection was lost, repeats it once on a new
    /// one, provided that nothing was sent or the work is `repeatable`.
    fn with<T>(
        &mut self,
        watch: &Watch,
        repeatable: bool,
        mut work: impl FnMut(&mut dyn Connection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let mut again = true;
        loop {
            let connection = self.connected(watch)?;
            let answer = work(connection);
            self.used = Instant::now();
            let Err(error) = answer else { return answer };
            self.doubtful = error.code.is_none();
            if error.broken {
                self.drop_connection();
            }
            let lost = error.reason == Reason::Lost && (repeatable || !error.sent);
            if !(lost && again) {
                return Err(error);
            }
            tracing::debug!(database = ?self.target, %error, "the connection was lost; retrying once");
            again = false;
        }
    }

    /// Returns a connection that works, as far as can be known; reconnects if needed.
    fn connected(&mut self, watch: &Watch) -> Result<&mut dyn Connection, DbError> {
        let idle = self.used.elapsed() >= self.habits.check_after;
        let dead = match &mut self.connection {
            Some(connection) if connection.is_closed() => true,
            Some(connection) if idle || self.doubtful => connection.ping(watch).is_err(),
            _ => false,
        };
        if dead {
            self.drop_connection();
        }
        self.doubtful = false;
        if self.connection.is_none() {
            self.connection = Some(self.reconnect(watch)?);
        }
        match &mut self.connection {
            Some(connection) => Ok(&mut **connection),
            None => Err(DbError::new(Reason::Unreachable, "no connection")),
        }
    }

    /// Connects, with growing pauses, until it succeeds or the time is over.
    fn reconnect(&self, watch: &Watch) -> Result<Box<dyn Connection>, DbError> {
        let watch = watch.narrowed(Some(self.habits.reconnect));
        let mut pause = PAUSES.0;
        loop {
            let error = match self.target.connect(&self.habits, &watch) {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            tracing::debug!(database = ?self.target, %error, "cannot connect");
            // A permanent error, or one for which no time is left, is returned as it is.
            if !error.retryable || watch.sleep(pause).is_err() {
                return Err(error);
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn drop_connection(&mut self) {
        self.connection = None;
        self.doubtful = false;
    }
}

fn run_all(
    connection: &mut dyn Connection,
    statements: &[Statement],
    habits: &Habits,
    watch: &Watch,
) -> Result<Vec<Reply>, DbError> {
    let mut replies = Vec::with_capacity(statements.len());
    let mut bounds = habits.bounds();
    for (at, statement) in statements.iter().enumerate() {
        let watch = watch.narrowed(habits.statement_timeout);
        let reply = connection.run(statement, Want::All, bounds, &watch);
        let reply = reply.and_then(|reply| expected(statement, reply));
        let reply = reply.map_err(|error| error.at(at))?;
        // The limits apply to all statements together.
        bounds.rows = bounds.rows.saturating_sub(reply.table.rows.len());
        bounds.bytes = bounds.bytes.saturating_sub(reply.table.size());
        replies.push(reply);
    }
    Ok(replies)
}

fn expected(statement: &Statement, reply: Reply) -> Result<Reply, DbError> {
    match statement.expect_rows {
        Some(rows) if rows != reply.affected => {
            let words = format!("{} rows instead of {rows}", reply.affected);
            Err(DbError::new(Reason::ExpectedRows, words))
        }
        _ => Ok(reply),
    }
}

/// Rolls back after an error. If that fails, the connection is not used again, and the database
/// rolls back when it notices.
fn take_back(connection: &mut dyn Connection, error: DbError) -> DbError {
    if error.broken {
        return error;
    }
    match connection.rollback() {
        Ok(()) => error,
        Err(_) => DbError { broken: true, ..error },
    }
}

fn refuse_bounds(statement: &Statement) -> Result<(), DbError> {
    if sql::bounds_transaction(&statement.sql) {
        let words = "transactions are begun and ended by db.transaction only";
        return Err(DbError::new(Reason::Refused, words));
    }
    Ok(())
}
