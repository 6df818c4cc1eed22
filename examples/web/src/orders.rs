//! Orders in SQLite: a report with several slow queries in sequence.

use std::path::Path;

use axum::response::Response;
use futures_util::stream;
use longshore_pool::axum::{Update, sse};
use longshore_pool::database::{Db, DbOptions, Value};
use longshore_pool::{CallError, CallPayload};
use serde_json::json;

/// The table with a year of orders.
const FILL: &str = "
    INSERT INTO orders (month, port, tons)
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
    SELECT i % 12 + 1, i * 7919 % 40, i * 104729 % 500 FROM n";

/// Compares each order of a month with all others of that month, which no index can speed up.
const REPORT: &str = "
    SELECT sum(a.tons > b.tons AND a.port <> b.port) AS overtaken, sum(DISTINCT a.tons) AS tons
    FROM orders a JOIN orders b ON a.month = b.month AND abs(a.tons - b.tons) < 400
    WHERE a.month = ?";

const MONTHS: i64 = 12;

pub(crate) async fn open(path: &Path) -> Result<Db, CallError> {
    let db = Db::sqlite(path, DbOptions::default().name("orders").create_if_missing()).await?;
    db.execute("CREATE TABLE orders (month INTEGER, port INTEGER, tons INTEGER)", []).await?;
    db.execute(FILL, []).await?;
    Ok(db)
}

/// Runs a report, month by month. Each query blocks only one worker, which has its own connection.
pub(crate) async fn report(db: Db) -> Response {
    let begin = Some(Progress { db, month: 1, overtaken: 0 });
    sse(stream::unfold(begin, async |progress| match progress {
        Some(progress) => Some(progress.step().await),
        None => None,
    }))
}

/// The progress of a report.
struct Progress {
    db: Db,
    month: i64,
    overtaken: i64,
}

impl Progress {
    async fn step(mut self) -> (Update, Option<Self>) {
        if self.month > MONTHS {
            let text = format!("{:.1} million pairs of orders", self.overtaken as f64 / 1e6);
            return (Update::Done(words(&json!({"text": text}))), None);
        }
        match self.db.select_row(REPORT, [Value::from(self.month)]).await {
            Err(error) => (Update::Failed(error), None),
            Ok(row) => {
                let row = row.unwrap_or_default();
                self.overtaken += row.get("overtaken").and_then(Value::as_i64).unwrap_or(0);
                let far = words(&json!({"done": self.month, "of": MONTHS}));
                self.month += 1;
                (Update::Progress(far), Some(self))
            }
        }
    }
}

fn words(value: &serde_json::Value) -> CallPayload {
    CallPayload::from_json_text(value.to_string())
}
