//! MySQL and MariaDB, with mysql_async on a runtime per worker: the worker's thread blocks on it.
//!
//! A statement is stopped by `KILL QUERY` on a second connection, which is opened for that only.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{BinaryProtocol, Conn, Opts, Params, QueryResult};
use tokio::runtime::Runtime;

use super::deadline::{GRACE, Watch};
use super::driver::{Connection, Reply};
use super::error::{DbError, Reason};
use super::options::Habits;
use super::row_collector::{Bounds, Gathering, Next, Want};
use super::sql;
use super::statement::Statement;
use super::value::Value;

pub mod address;
mod error;
pub mod value;

/// Timeout of connecting to a server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout of a commit or a rollback.
const ENDING: Duration = Duration::from_secs(30);
/// Rows beyond the needed ones are read and skipped up to this number; after that, stopping the
/// query costs less.
const TO_SKIP: u64 = 1_000;
/// Statements that commit the open transaction implicitly.
const COMMITTING: [&str; 17] = [
    "ALTER", "ANALYZE", "CACHE", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "LOAD", "LOCK",
    "OPTIMIZE", "RENAME", "REPAIR", "REVOKE", "SET", "TRUNCATE", "UNLOCK",
];

/// Checks a URL.
pub(super) fn check(url: &str) -> Result<(), DbError> {
    address::read(url, 0).map(drop).map_err(|error| error::of_address(&error))
}

pub(super) fn connect(
    url: &str,
    habits: &Habits,
    watch: &Watch,
) -> Result<Box<dyn Connection>, DbError> {
    let opts = address::read(url, habits.statements);
    let opts = opts.map_err(|error| error::of_address(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| DbError::new(Reason::Unreachable, format!("no runtime: {error}")))?;
    let patience = watch.left().map_or(PATIENCE, |left| left.min(PATIENCE));
    let conn = runtime.block_on(join(&opts, patience))?;
    let id = conn.id();
    let mut connection =
        Mysql { conn: Some(conn), killer: Killer { opts, id, asked: Cell::new(false) }, runtime };
    connection.set_up(habits, watch)?;
    Ok(Box::new(connection))
}

async fn join(opts: &Opts, patience: Duration) -> Result<Conn, DbError> {
    let shown = format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port());
    match tokio::time::timeout(patience, Conn::new(opts.clone())).await {
        Ok(joined) => joined.map_err(|error| error::of_connect(&shown, error)),
        Err(_) => Err(DbError::new(Reason::Unreachable, format!("{shown}: it does not answer"))),
    }
}

struct Mysql {
    /// `Some` until it is dropped.
    conn: Option<Conn>,
    killer: Killer,
    // Last, because the connection needs the runtime.
    runtime: Runtime,
}

/// Stops the statement of a session. The session is not used afterwards: if the statement ended a
/// moment earlier, the request would stop the next one.
struct Killer {
    opts: Opts,
    id: u32,
    asked: Cell<bool>,
}

impl Killer {
    /// If the request fails, the statement does not end in time, and the connection is dropped.
    async fn kill(&self) {
        self.asked.set(true);
        if let Ok(mut conn) = join(&self.opts, GRACE).await {
            let _ = conn.query_drop(format!("KILL QUERY {}", self.id)).await;
            let _ = conn.disconnect().await;
        }
    }

    /// Runs `work`, and stops it when the deadline passes or the call is cancelled.
    async fn guarded<T>(
        &self,
        watch: &Watch,
        work: impl Future<Output = Result<T, DbError>>,
    ) -> Result<T, DbError> {
        watch.guard(work, self.kill()).await
    }
}

impl Mysql {
    /// Applies the settings of the session.
    fn set_up(&mut self, habits: &Habits, watch: &Watch) -> Result<(), DbError> {
        let lock = habits.busy.as_secs().max(1);
        let mut settings = vec![
            format!("SET SESSION innodb_lock_wait_timeout = {lock}"),
            format!("SET SESSION lock_wait_timeout = {lock}"),
        ];
        settings.extend(habits.init.iter().cloned());
        if habits.read_only {
            settings.push("SET SESSION TRANSACTION READ ONLY".to_owned());
        }
        for sql in settings {
            self.batch(&sql, Some(watch)).map_err(|error| DbError {
                message: format!("{sql}: {}", error.message),
                ..error
            })?;
        }
        Ok(())
    }

    fn batch(&mut self, sql: &str, watch: Option<&Watch>) -> Result<(), DbError> {
        let Self { conn, killer, runtime } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let ran = async { conn.query_drop(sql).await.map_err(error::of) };
        runtime.block_on(async {
            match watch {
                Some(watch) => killer.guarded(watch, ran).await,
                None => tokio::time::timeout(ENDING, ran).await.unwrap_or_else(|_| {
                    Err(DbError::lost(format!("{sql}: the server does not answer")))
                }),
            }
        })
    }
}

fn closed() -> DbError {
    DbError::lost("the connection is closed").unsent()
}

async fn query(
    conn: &mut Conn,
    killer: &Killer,
    statement: &Statement,
    want: Want,
    bounds: Bounds,
) -> Result<Reply, DbError> {
    let params: Vec<_> = statement.params.iter().cloned().map(value::bound).collect();
    // If preparing fails, no statement of the caller has run.
    let prepared = conn.prep(statement.sql.as_str()).await;
    let prepared = prepared.map_err(|error| error::of(error).unsent())?;
    let wanted = usize::from(prepared.num_params());
    if params.len() != wanted {
        let words = format!("{} values for {wanted} parameters", params.len());
        return Err(DbError::new(Reason::Sql, words).code("07001"));
    }
    let params = if params.is_empty() { Params::Empty } else { Params::Positional(params) };
    let mut rows = conn.exec_iter(&prepared, params).await.map_err(error::of)?;
    gather(&mut rows, killer, statement, want, bounds).await
}

async fn gather(
    rows: &mut QueryResult<'_, 'static, BinaryProtocol>,
    killer: &Killer,
    statement: &Statement,
    want: Want,
    bounds: Bounds,
) -> Result<Reply, DbError> {
    let columns = rows.columns().unwrap_or_default();
    let returns = !columns.is_empty();
    let names = columns.iter().map(|column| column.name_str().into_owned());
    let mut gathering = Gathering::new(want, bounds, names);
    let (mut refused, mut skipped) = (None, 0);
    loop {
        let row = match rows.next().await {
            Ok(Some(row)) => row,
            Ok(None) => break,
            // The query was stopped on purpose.
            Err(_) if refused.is_some() || skipped > TO_SKIP => break,
            Err(error) => return Err(error::of(error)),
        };
        if refused.is_some() {
            continue;
        }
        match gathering.take(|| value::row(row)) {
            Ok(Next::More) => {}
            Ok(Next::Enough) => {
                skipped += 1;
                if skipped == TO_SKIP + 1 && sql::reads(&statement.sql) {
                    killer.kill().await;
                }
            }
            Err(error) => {
                refused = Some(error);
                killer.kill().await;
            }
        }
    }
    if let Some(error) = refused {
        return Err(error);
    }
    let affected = if returns { gathering.count() } else { rows.affected_rows() };
    let last_id = rows.last_insert_id().filter(|_| !returns && affected > 0).map(id);
    Ok(Reply { returns, table: gathering.into_table(), affected, last_id })
}

fn id(id: u64) -> Value {
    i64::try_from(id).map_or_else(|_| Value::Text(id.to_string()), Value::Int)
}

impl Connection for Mysql {
    fn is_closed(&self) -> bool {
        self.killer.asked.get()
    }

    fn ping(&mut self, watch: &Watch) -> Result<(), DbError> {
        let Self { conn, killer, runtime } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let asked = async { conn.ping().await.map_err(error::of) };
        runtime.block_on(killer.guarded(watch, asked))
    }

    fn run(
        &mut self,
        statement: &Statement,
        want: Want,
        bounds: Bounds,
        watch: &Watch,
    ) -> Result<Reply, DbError> {
        let Self { conn, killer, runtime } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let ran = query(conn, killer, statement, want, bounds);
        runtime.block_on(killer.guarded(watch, ran))
    }

    fn refuses_in_transaction(&self, sql: &str) -> Option<&'static str> {
        COMMITTING
            .contains(&sql::verb(sql).as_str())
            .then_some("this server would commit what came before it; run it by db.do")
    }

    fn begin(&mut self, watch: &Watch) -> Result<(), DbError> {
        self.batch("START TRANSACTION", Some(watch))
    }

    fn commit(&mut self, _: &Watch) -> Result<(), DbError> {
        self.batch("COMMIT", None)
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        self.batch("ROLLBACK", None)
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        // The driver's quit message needs the runtime; without it the server logs an aborted
        // connection.
        if let Some(conn) = self.conn.take() {
            self.runtime.block_on(async {
                let _ = tokio::time::timeout(Duration::from_secs(1), conn.disconnect()).await;
            });
        }
    }
}
