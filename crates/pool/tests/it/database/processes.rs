//! Connections in child processes, which are killed during statements.

use std::time::Duration;

use longshore_pool::database::{Db, DbIsolation, DbOptions, Statement, Value};
use longshore_pool::{CallOptions, CancelEffect, ErrorKind, Program, params};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::cases::{self, ParameterStyle};
use super::sqlite::SLOW;
use crate::helpers::{eventually, example, exists};

fn options() -> DbOptions {
    let program = Program::command(example("database_processes")).args(["__longshore_worker", "database"]);
    DbOptions::default().workers(1, 1).create_if_missing().isolation(DbIsolation::Processes(Some(program)))
}

async fn open(folder: &TempDir, options: DbOptions) -> Db {
    Db::sqlite(folder.path().join("test.db"), options).await.unwrap()
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// The process that has the only connection.
async fn worker_of(db: &Db) -> u32 {
    // The error of a failed call names its worker.
    let error = db.select_value("SELECT absent", []).await.unwrap_err();
    error.worker.unwrap().pid.unwrap()
}

async fn lines(db: &Db) -> Value {
    db.select_value("SELECT count(*) FROM line", []).await.unwrap()
}

#[tokio::test]
async fn all_operations_work_in_a_process() {
    let folder = TempDir::new().unwrap();
    let db = open(&folder, options()).await;
    cases::create_lines(&db).await;
    let style = ParameterStyle::QuestionMark;
    cases::selects_give_rows_columns_and_values(&db, style).await;
    let codes = ["23505", "23502", "42000"];
    cases::errors_carry_a_code_and_leave_the_worker_in_order(&db, style, codes).await;
    cases::a_transaction_is_all_or_nothing(&db, style).await;
    let brief = open(&folder, options().statement_timeout(cases::STATEMENT_TIMEOUT)).await;
    cases::a_slow_statement_is_stopped_and_rolled_back(&brief, style, SLOW).await;
    let bytes = vec![0_u8, 255];
    let read = db.select_value("SELECT ?", params![bytes.clone()]).await.unwrap();
    assert_eq!(read, Value::Bytes(bytes));
    let pid = worker_of(&db).await;
    db.close(Duration::from_secs(10)).await;
    eventually("the worker is gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_transaction_is_rolled_back_when_its_worker_is_killed() {
    let folder = TempDir::new().unwrap();
    let db = open(&folder, options()).await;
    cases::create_lines(&db).await;
    let pid = worker_of(&db).await;
    let statements = [
        Statement::new("INSERT INTO line (id, item) VALUES (10, 'half')", []),
        Statement::new(SLOW, []),
        Statement::new("INSERT INTO line (id, item) VALUES (11, 'done')", []),
    ];
    let call = db.transaction(statements);
    let killer = async {
        locked(&folder, "BEGIN IMMEDIATE; ROLLBACK").await;
        kill(pid);
    };
    let (answer, ()) = tokio::join!(call, killer);
    let error = answer.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::WorkerDied { signal: Some(9), .. }), "{error:?}");
    assert_eq!(lines(&db).await, Value::Int(3), "another worker finds nothing of it");
    assert_ne!(worker_of(&db).await, pid);
}

#[tokio::test]
async fn a_read_is_asked_for_again_once_when_its_worker_dies_and_a_write_is_not() {
    let folder = TempDir::new().unwrap();
    let db = open(&folder, options()).await;
    cases::create_lines(&db).await;
    let read = format!("SELECT ({SLOW}) FROM line");
    let first = worker_of(&db).await;
    let kill_two = async {
        locked(&folder, "BEGIN EXCLUSIVE; ROLLBACK").await;
        kill(first);
        eventually("another has it", || holders(&folder).iter().any(|pid| *pid != first)).await;
        locked(&folder, "BEGIN EXCLUSIVE; ROLLBACK").await;
        holders(&folder).into_iter().for_each(kill);
    };
    let (answer, ()) = tokio::join!(db.select_value(&read, []), kill_two);
    let error = answer.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::WorkerDied { .. }), "{error:?}");
    assert_ne!(error.worker.unwrap().pid, Some(first), "it had been asked for again");

    let pid = worker_of(&db).await;
    let write = format!("INSERT INTO line (id, item) SELECT 30, 'x' WHERE ({SLOW}) = 0");
    let kill_it = async {
        locked(&folder, "BEGIN IMMEDIATE; ROLLBACK").await;
        kill(pid);
    };
    let (answer, ()) = tokio::join!(db.execute(&write, []), kill_it);
    let error = answer.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::WorkerDied { .. }), "{error:?}");
    assert_eq!(error.worker.unwrap().pid, Some(pid), "no other worker tried it");
    assert_eq!(lines(&db).await, Value::Int(3));
}

/// Waits until another connection holds a lock that blocks these statements.
async fn locked(folder: &TempDir, sql: &str) {
    let other = rusqlite::Connection::open(folder.path().join("test.db")).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    eventually("it is locked", || other.execute_batch(sql).is_err()).await;
}

/// The processes that have the database open, except this one.
fn holders(folder: &TempDir) -> Vec<u32> {
    let path = folder.path().join("test.db");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file == path)
        })
        .collect()
}

#[tokio::test]
async fn a_worker_that_hangs_is_killed_and_its_transaction_rolled_back() {
    let folder = TempDir::new().unwrap();
    let db = open(&folder, options()).await;
    cases::create_lines(&db).await;
    let pid = worker_of(&db).await;
    // While it is stopped, it cannot check the deadline.
    let stop = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    let insert = Statement::new("INSERT INTO line (id, item) VALUES (40, 'x')", []);
    let brief = db.with(CallOptions::default().timeout(Duration::from_secs(6)));
    let freeze = async {
        locked(&folder, "BEGIN IMMEDIATE; ROLLBACK").await;
        kill_process(stop, Signal::STOP).unwrap();
    };
    let (answer, ()) = tokio::join!(brief.transaction([insert, Statement::new(SLOW, [])]), freeze);
    let error = answer.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { effect: CancelEffect::Killed, .. }), "{error:?}");
    assert_eq!(lines(&db).await, Value::Int(3));
}

/// The worker is killed while the server executes its sleep: the deletion is rolled back, and no
/// lock is left. `sleeping` queries the server; `end` makes the server notice the lost client.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "odbc"))]
async fn a_kill_in_the_middle_is_rolled_back(
    db: &Db,
    sleep: &str,
    mut sleeping: impl FnMut() -> bool,
    end: impl FnOnce(),
) {
    cases::create_lines(db).await;
    let pid = worker_of(db).await;
    let statements = [Statement::new("DELETE FROM line", []), Statement::new(sleep, [])];
    let killer = async {
        eventually("it sleeps", &mut sleeping).await;
        kill(pid);
    };
    let (answer, ()) = tokio::join!(db.transaction(statements), killer);
    let error = answer.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::WorkerDied { signal: Some(9), .. }), "{error:?}");
    assert_eq!(lines(db).await, Value::Int(3));
    end();
    eventually("the server has noticed", || !sleeping()).await;
    assert_eq!(db.execute("DELETE FROM line", []).await.unwrap(), 3, "no lock is held");
    assert_ne!(worker_of(db).await, pid);
}

/// Whether one of the server's sessions sleeps.
#[cfg(any(feature = "postgres", feature = "odbc"))]
fn sleeping(server: &longshore_testkit::servers::PrivatePostgres) -> bool {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' \
                 AND state = 'active' AND pid <> pg_backend_pid()";
    server.run(query).unwrap().trim() == "1"
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_rolls_back_when_the_worker_is_killed_in_the_middle_of_a_statement() {
    let server = longshore_testkit::servers::PrivatePostgres::start().unwrap();
    let db = Db::postgres(server.url(), options()).await.unwrap();
    let sleep = "SELECT pg_sleep(600)";
    a_kill_in_the_middle_is_rolled_back(&db, sleep, || sleeping(&server), || ()).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn mysql_rolls_back_when_the_worker_is_killed_in_the_middle_of_a_statement() {
    let server = longshore_testkit::servers::PrivateMariaDb::start().unwrap();
    let db = Db::mysql(server.url(), options()).await.unwrap();
    let sessions = || {
        let query = "SELECT id FROM information_schema.processlist \
                     WHERE info LIKE '%sleep(600)' AND id <> connection_id()";
        server.run(query).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // The server notices only when the statement ends.
    let end = || {
        for id in sessions() {
            server.run(&format!("KILL QUERY {id}")).unwrap();
        }
    };
    let sleep = "SELECT sleep(600)";
    a_kill_in_the_middle_is_rolled_back(&db, sleep, || !sessions().is_empty(), end).await;
}

#[cfg(feature = "odbc")]
#[tokio::test]
async fn odbc_rolls_back_when_the_worker_is_killed_in_the_middle_of_a_statement() {
    let server = longshore_testkit::servers::PrivatePostgres::start().unwrap();
    let db = Db::odbc(super::odbc::string(&server), options()).await.unwrap();
    // The driver does not enable the server's check for lost clients.
    let end = || {
        let query = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
                     WHERE query LIKE '%pg_sleep(600)' AND pid <> pg_backend_pid()";
        server.run(query).unwrap();
    };
    let sleep = "SELECT pg_sleep(600)";
    a_kill_in_the_middle_is_rolled_back(&db, sleep, || sleeping(&server), end).await;
}

#[tokio::test]
async fn a_program_without_orders_for_the_pool_is_an_error() {
    let folder = TempDir::new().unwrap();
    let program = Program::command(example("database_processes")).args(["__longshore_worker", "x"]);
    let options = options().isolation(DbIsolation::Processes(Some(program)));
    let path = folder.path().join("test.db");
    let error = Db::sqlite(path, options).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::StartFailed { .. }), "{error:?}");
    assert!(error.to_string().contains("no operations for the pool"), "{error}");
}
