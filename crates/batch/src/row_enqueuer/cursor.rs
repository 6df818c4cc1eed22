//! The initiator's cursor, stored with the batch and moved in one transaction with the rows it
//! passed.

use longshore::SqlValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::FillError;
use crate::rows::PriorityPass;
use crate::sql_json::{from_json, to_json};

/// The candidates passed so far: sent, or skipped because another batch has them. The number of
/// sent rows is the batch's own count, so that a crash cannot make the two disagree.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct FillCursor {
    /// The pass of the last candidate passed. `None` if all rows are read in key order.
    pub(super) pass: Option<PriorityPass>,
    /// The key of the last candidate passed.
    pub(super) key: Option<SqlValue>,
    /// The number of candidates passed.
    pub(super) rows: u64,
}

#[derive(Serialize, Deserialize)]
struct CursorRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pass: Option<PriorityPass>,
    key: Value,
    rows: u64,
}

impl FillCursor {
    /// Parses the text that [`Self::write`] made. The cursor of a batch without rows is empty.
    pub(super) fn read(text: &str) -> Result<Self, FillError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let CursorRecord { pass, key, rows } = serde_json::from_str(text).map_err(|_| {
            FillError::Data(format!("the batch's cursor `{text}` was not written by an initiator"))
        })?;
        Ok(Self { pass, key: Some(from_json(&key)), rows })
    }

    pub(super) fn write(&self) -> String {
        let key = self.key.as_ref().map_or(Value::Null, to_json);
        let record = CursorRecord { pass: self.pass, key, rows: self.rows };
        serde_json::json!(record).to_string()
    }

    /// The cursor after `count` more rows, the last with `key` in this pass.
    pub(super) fn advanced(&self, pass: Option<PriorityPass>, key: SqlValue, count: u64) -> Self {
        Self { pass, key: Some(key), rows: self.rows + count }
    }
}
