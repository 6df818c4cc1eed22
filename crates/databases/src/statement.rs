//! A statement with its parameters, in the forms that callers may send.
//!
//! ```json
//! "SELECT 1"
//! ["SELECT * FROM line WHERE id = ?", 7]
//! {"sql": "UPDATE line SET open = ? WHERE id = ?", "params": [false, 7], "expect_rows": 1}
//! ```

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::value::Value;

/// A statement with its parameters, which are bound by the database's own placeholders (`?`, in
/// PostgreSQL `$1`) and never pasted into SQL.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Statement {
    /// The SQL.
    pub sql: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    /// The parameters in order.
    pub params: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// In a transaction: the number of rows that it must change or return.
    pub expect_rows: Option<u64>,
}

impl Statement {
    /// A statement with its parameters.
    pub fn new(sql: impl Into<String>, params: impl IntoIterator<Item = Value>) -> Self {
        Self { sql: sql.into(), params: params.into_iter().collect(), expect_rows: None }
    }

    /// In a transaction: if it changes or returns another number of rows, the transaction is rolled
    /// back.
    #[must_use]
    pub fn expect_rows(mut self, rows: u64) -> Self {
        self.expect_rows = Some(rows);
        self
    }
}

impl<'de> Deserialize<'de> for Statement {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StatementVisitor)
    }
}

struct StatementVisitor;

impl<'de> Visitor<'de> for StatementVisitor {
    type Value = Statement;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SQL, [SQL, parameters…] or {\"sql\": …, \"params\": […]}")
    }

    fn visit_str<E>(self, sql: &str) -> Result<Statement, E> {
        Ok(Statement::new(sql, []))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Statement, A::Error> {
        let sql: Option<String> = list.next_element()?;
        let sql = sql.ok_or_else(|| de::Error::custom("a list without SQL"))?;
        let mut params = Vec::new();
        while let Some(value) = list.next_element()? {
            params.push(value);
        }
        Ok(Statement { sql, params, expect_rows: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Statement, A::Error> {
        let (mut sql, mut params, mut expect_rows) = (None, Vec::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "sql" => sql = Some(map.next_value()?),
                "params" => params = map.next_value()?,
                "expect_rows" => expect_rows = map.next_value()?,
                other => {
                    let known = &["sql", "params", "expect_rows"];
                    return Err(de::Error::unknown_field(other, known));
                }
            }
        }
        let sql = sql.ok_or_else(|| de::Error::missing_field("sql"))?;
        Ok(Statement { sql, params, expect_rows })
    }
}

/// The outcome of one statement of a transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatementOutcome {
    /// Rows that it changed, or returned.
    pub rows_affected: u64,
    /// The id of the row that it inserted, where the database reports it by itself (SQLite, MySQL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<Value>,
    /// The rows that it returned, if it returns rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<super::ResultRow>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_written_in_three_ways() {
        let plain: Statement = serde_json::from_str("\"SELECT 1\"").unwrap();
        assert_eq!(plain, Statement::new("SELECT 1", []));
        let list: Statement = serde_json::from_str(r#"["SELECT ?, ?", 1, null]"#).unwrap();
        assert_eq!(list, Statement::new("SELECT ?, ?", [Value::Int(1), Value::Null]));
        let full = r#"{"sql":"x","params":["a"],"expect_rows":2}"#;
        let read: Statement = serde_json::from_str(full).unwrap();
        assert_eq!(read, Statement::new("x", ["a".into()]).expect_rows(2));
        assert_eq!(serde_json::to_string(&read).unwrap(), full);
    }

    #[test]
    fn what_is_no_statement_is_refused() {
        for json in ["7", "[]", "[7]", "{}", r#"{"sql":"x","parms":[]}"#, r#"["x", [1]]"#] {
            assert!(serde_json::from_str::<Statement>(json).is_err(), "{json}");
        }
    }
}
