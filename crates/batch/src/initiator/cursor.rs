//! Where an initiator is, as the store keeps it: moved in one transaction with the rows it passed.

use longshore::SqlValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::InitiateError;
use crate::value::{from_json, to_json};

/// The candidates that were passed: sent, or skipped because another batch has them. How many were
/// sent is what the batch counts, so that a crash cannot make the two disagree.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Cursor {
    /// The last one's key.
    pub(super) key: Option<SqlValue>,
    /// How many.
    pub(super) rows: u64,
}

#[derive(Serialize, Deserialize)]
struct Written {
    key: Value,
    rows: u64,
}

impl Cursor {
    /// Reads what [`Self::write`] wrote. A batch that was never added to has an empty one.
    pub(super) fn read(text: &str) -> Result<Self, InitiateError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let Written { key, rows } = serde_json::from_str(text).map_err(|_| {
            InitiateError::Data(format!("the batch's cursor `{text}` is not an initiator's"))
        })?;
        Ok(Self { key: Some(from_json(&key)), rows })
    }

    pub(super) fn write(&self) -> String {
        let key = self.key.as_ref().map_or(Value::Null, to_json);
        serde_json::json!({ "key": key, "rows": self.rows }).to_string()
    }

    /// Behind `count` more rows, the last of which has `key`.
    pub(super) fn past(&self, key: SqlValue, count: u64) -> Self {
        Self { key: Some(key), rows: self.rows + count }
    }
}
