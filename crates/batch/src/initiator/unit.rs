//! From a candidate row to the unit that stands for it.

use longshore::name::NameError;
use longshore::unit::{DedupWindow, OnDuplicate};
use longshore::{
    Batch, Dedup, Kind, NewUnit, OnLost, Payload, Policy, Priority, QueueName, SqlValue,
};
use serde_json::Value;

use super::InitiateError;
use super::page::cut;
use crate::definition::{Definition, QUEUE, ROW_KIND};
use crate::handler::RowInput;
use crate::rows::Candidate;
use crate::value::{from_json, show_key, to_json};

/// The longest key of a row, its claim included: what a store accepts.
const MAX_KEY: usize = 512;

/// Makes the units of one batch.
pub(super) struct Units {
    queue: QueueName,
    kind: Kind,
    policy: Policy,
    /// The claim's part of each unit's key.
    claim: Option<String>,
}

impl Units {
    pub(super) fn new(definition: &Definition) -> Result<Self, NameError> {
        let retry = definition.retry.clone();
        // Whether a row whose worker died is asked about again is for its handler to say: it
        // knows whether the question was out.
        let policy = Policy { retry, timeout: None, on_lost: OnLost::Rerun, ..Policy::default() };
        let claim = definition.candidates.claim.as_deref().map(prefix);
        Ok(Self { queue: QueueName::new(QUEUE)?, kind: Kind::new(ROW_KIND)?, policy, claim })
    }

    /// The unit for one row.
    pub(super) fn unit(&self, batch: &Batch, row: &Candidate) -> Result<NewUnit, InitiateError> {
        let key = exact(row)?;
        let (priority, problem) = match priority(row) {
            Ok(priority) => (priority, None),
            // One such row must not keep all others out: its run tells POST, and fails.
            Err(problem) => (Priority::NORMAL, Some(problem)),
        };
        let input = RowInput { key, problem };
        let payload = Payload::json(&input).map_err(|error| refuse(row, &error.to_string()))?;
        let mut unit = NewUnit::new(self.kind.clone(), payload);
        unit.tenant = batch.tenant.clone();
        unit.queue = self.queue.clone();
        unit.priority = priority;
        unit.policy = Some(self.policy.clone());
        unit.dedup = self.dedup(batch, row)?;
        Ok(unit)
    }

    /// A row is taken while another unit for it is live, or ended since this batch was started:
    /// then it may have been read as a candidate before that unit's end.
    fn dedup(&self, batch: &Batch, row: &Candidate) -> Result<Option<Dedup>, InitiateError> {
        let claim = self.claim.as_deref().unwrap_or_default();
        // As JSON: the number 1 and the text `1` are two rows.
        let key = format!("{claim}{}", to_json(&row.key));
        if key.len() > MAX_KEY {
            let words = format!("is longer than {} bytes", MAX_KEY - claim.len().min(MAX_KEY));
            return Err(refuse(row, &words));
        }
        let window = DedupWindow::Since(batch.initiated_at);
        let dedup = Dedup { key, window, on_duplicate: OnDuplicate::Existing };
        Ok(self.claim.is_some().then_some(dedup))
    }
}

/// A row's key as JSON that means the same key when it is read again.
fn exact(row: &Candidate) -> Result<Value, InitiateError> {
    let key = to_json(&row.key);
    let is_exact = match row.key {
        SqlValue::Int(_) | SqlValue::Text(_) | SqlValue::Bool(_) => true,
        SqlValue::Real(_) => {
            let again = serde_json::from_str::<Value>(&key.to_string());
            again.is_ok_and(|again| from_json(&again) == row.key)
        }
        SqlValue::Null | SqlValue::Blob(_) => false,
    };
    if is_exact {
        return Ok(key);
    }
    Err(refuse(row, "cannot be kept exactly: a key must be a whole number or text"))
}

/// The claim's part of a key, so that no other claim and key come to the same text.
fn prefix(claim: &str) -> String {
    format!("{}:", claim.replace('%', "%25").replace(':', "%3A"))
}

fn priority(row: &Candidate) -> Result<Priority, String> {
    let level = match &row.priority {
        None | Some(SqlValue::Null) => return Ok(Priority::NORMAL),
        Some(SqlValue::Text(text)) => text.trim().to_ascii_lowercase(),
        Some(SqlValue::Real(real)) if real.fract() == 0.0 => format!("{real:.0}"),
        Some(value) => show_key(value),
    };
    level.parse().map_err(|error| format!("the row has a bad priority: {error}"))
}

fn refuse(row: &Candidate, why: &str) -> InitiateError {
    InitiateError::Data(format!("the row with key `{}` {why}", cut(&show_key(&row.key))))
}
