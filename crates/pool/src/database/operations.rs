//! The operations of a database worker.

use std::time::{Duration, Instant};

use longshore_databases::{
    ConnectionConfig, DatabaseTarget, DbError, Deadline, ResultTable, RowObject, RowsWanted, Statement,
    StatementResult, Value,
};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::session::Session;
use crate::call::PoolCall;
use crate::error::OperationError;
use crate::operation::{Operation, Operations};
use crate::payload::CallPayload;

/// A statement is stopped this much before its call's deadline, so that the caller gets the reason
/// and the connection stays usable: a tenth of the remaining time, at most 250 ms.
const MARGIN: (u32, Duration) = (10, Duration::from_millis(250));

pub(super) const SELECT_ALL: &str = "db.select_all";
pub(super) const SELECT_ROW: &str = "db.select_row";
pub(super) const SELECT_COL: &str = "db.select_col";
pub(super) const SELECT_VALUE: &str = "db.select_value";
pub(super) const DO: &str = "db.do";
pub(super) const INSERT: &str = "db.insert";
pub(super) const TRANSACTION: &str = "db.transaction";
pub(super) const PING: &str = "db.ping";

/// All operations on a database. Each worker has its own connection.
pub(super) fn operations(target: DatabaseTarget, config: ConnectionConfig) -> Operations<Session> {
    let read_only = config.read_only;
    let set = Operations::new(move || Ok(Session::open(target.clone(), config.clone())?));
    // Whether a SELECT may be repeated is certain only for a read-only database.
    let about = |name: &str, description: &str, result| {
        let mut about = Operation::new(name).description(description);
        (about.arguments, about.result) = (Some(statement_schema()), Some(result));
        about.idempotent = read_only;
        about
    };
    let row = || json!({ "type": "object" });
    let value = || schemars::schema_for!(Value).to_value();
    let set = set
        .add_raw(
            about(SELECT_ALL, "All rows, as objects.", json!({ "type": "array", "items": row() })),
            |session, call, statement| {
                let result = run(session, call, &statement, RowsWanted::All)?;
                to_payload(&Objects(&result.table))
            },
        )
        .add_raw(
            about(SELECT_ROW, "The first row, or null.", json!({ "type": ["object", "null"] })),
            |session, call, statement| {
                let result = run(session, call, &statement, RowsWanted::First)?;
                to_payload(&result.table.objects().next())
            },
        )
        .add_raw(
            about(SELECT_COL, "The first column of all rows.", json!({ "type": "array", "items": value() })),
            |session, call, statement| {
                let result = run(session, call, &statement, RowsWanted::All)?;
                to_payload(&result.table.first_column().collect::<Vec<_>>())
            },
        )
        .add_raw(
            about(SELECT_VALUE, "The first column of the first row, or null.", value()),
            |session, call, statement| {
                let result = run(session, call, &statement, RowsWanted::First)?;
                to_payload(&result.table.first_value())
            },
        );
    add_writing_operations(set, about)
}

fn add_writing_operations(
    set: Operations<Session>,
    about: impl Fn(&str, &str, serde_json::Value) -> Operation,
) -> Operations<Session> {
    let value = schemars::schema_for!(Value).to_value();
    let mut transaction = about(
        TRANSACTION,
        "Runs statements in one transaction, all or none; returns the outcome of each.",
        json!({ "type": "array", "items": { "type": "object" } }),
    );
    transaction.arguments = Some(json!({ "type": "array", "items": statement_schema() }));
    let mut ping = about(PING, "Checks that the database responds.", json!({ "const": true }));
    (ping.arguments, ping.idempotent) = (None, true);
    set.add_raw(
        about(
            DO,
            "Runs a statement; returns the number of rows that it changed.",
            json!({ "type": "integer" }),
        ),
        |session, call, statement| {
            let result = run(session, call, &statement, RowsWanted::Count)?;
            to_payload(&result.affected.unwrap_or(0))
        },
    )
    .add_raw(
        about(INSERT, "Runs an INSERT; returns the new row's id, or the first column of RETURNING.", value),
        |session, call, statement| {
            let result = run(session, call, &statement, RowsWanted::First)?;
            let id = if result.returns { result.table.first_value() } else { result.last_id };
            to_payload(&id)
        },
    )
    .add_raw(transaction, |session, call, arguments| {
        let statements: Vec<Statement> = read(&arguments)?;
        let results = session.transaction(&statements, &deadline(call, Instant::now()))?;
        to_payload(&results.iter().map(ResultJson).collect::<Vec<_>>())
    })
    .add_raw(ping, |session, call, _| {
        session.ping(&deadline(call, Instant::now()))?;
        to_payload(&true)
    })
}

fn run(
    session: &mut Session,
    call: &PoolCall,
    arguments: &CallPayload,
    want: RowsWanted,
) -> Result<StatementResult, OperationError> {
    let statement: Statement = read(arguments)?;
    session.run(&statement, want, &deadline(call, Instant::now())).map_err(DbError::into)
}

/// The deadline of a call's statements.
fn deadline(call: &PoolCall, now: Instant) -> Deadline {
    let until = call.deadline().map(|deadline| {
        let left = deadline.saturating_duration_since(now);
        deadline - (left / MARGIN.0).min(MARGIN.1)
    });
    let call = call.clone();
    Deadline::new(until, move || call.is_cancelled())
}

fn read<T: serde::de::DeserializeOwned>(arguments: &CallPayload) -> Result<T, OperationError> {
    arguments.read().map_err(|error| OperationError::bad_arguments(error.to_string()))
}

fn to_payload<T: Serialize + ?Sized>(value: &T) -> Result<CallPayload, OperationError> {
    CallPayload::json(value).map_err(OperationError::of)
}

fn statement_schema() -> serde_json::Value {
    let sql = json!({ "type": "string" });
    let value = schemars::schema_for!(Value).to_value();
    json!({ "anyOf": [
        sql,
        { "type": "array", "prefixItems": [sql], "items": value, "minItems": 1 },
        { "type": "object", "properties": {
            "sql": sql,
            "params": { "type": "array", "items": value },
            "expect_rows": { "type": "integer", "minimum": 0 },
        }, "required": ["sql"], "additionalProperties": false },
    ] })
}

/// Serialises rows as a list of objects.
struct Objects<'t>(&'t ResultTable);

impl Serialize for Objects<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.objects())
    }
}

/// Serialises the outcome of a statement as an [`super::StatementOutcome`].
struct ResultJson<'r>(&'r StatementResult);

impl Serialize for ResultJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'r> {
            rows_affected: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            last_id: Option<&'r Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            rows: Option<Vec<RowObject<'r>>>,
        }
        let Self(result) = self;
        let rows = result.returns.then(|| result.table.objects().collect());
        Form { rows_affected: result.affected.unwrap_or(0), last_id: result.last_id.as_ref(), rows }
            .serialize(to)
    }
}
