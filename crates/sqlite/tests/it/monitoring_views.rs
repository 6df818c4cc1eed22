//! The SQL views for people's own queries.

use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::rusqlite::types::Value;
use longshore_testkit::conformance::monitoring_views;

use crate::helpers::fixture_at;

#[tokio::test]
async fn the_monitoring_queries_run_as_sql() {
    let (fixture, path) = fixture_at().await;
    let db = Connection::open(path).unwrap();
    let query = |sql: &str| {
        let mut statement = db.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut text = String::new();
        while let Some(row) = rows.next().unwrap() {
            let values = (0..columns).map(|at| match row.get(at).unwrap() {
                Value::Null => String::new(),
                Value::Integer(number) => number.to_string(),
                Value::Real(number) => number.to_string(),
                Value::Text(text) => text,
                Value::Blob(_) => unreachable!("no view has a BLOB"),
            });
            text += &(values.collect::<Vec<_>>().join("\t") + "\n");
        }
        text
    };
    monitoring_views::the_monitoring_queries_run_as_sql(&fixture, query).await;
}
