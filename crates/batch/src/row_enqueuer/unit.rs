//! Makes the unit for a candidate row.

use longshore::name::NameError;
use longshore::unit::{DedupWindow, OnDuplicate};
use longshore::{
    Batch, Dedup, Kind, NewUnit, OnLost, Payload, Policy, Priority, QueueName, SqlValue, Timestamp,
};
use serde_json::Value;

use super::FillError;
use super::pages::truncated;
use crate::definition::{Definition, QUEUE, ROW_KIND};
use crate::handler::RowInput;
use crate::rows::Candidate;
use crate::sql_json::{from_json, show_key, to_json};

/// The longest dedup key that a store accepts, including the claim's prefix.
const MAX_KEY: usize = 512;

/// Makes the units of one batch.
pub(super) struct UnitFactory {
    queue: QueueName,
    kind: Kind,
    policy: Policy,
    /// The prefix of each unit's dedup key.
    claim: Option<String>,
    /// Whether rows are read by priority. If a priority changes meanwhile, its row is read again.
    has_passes: bool,
    skip_since: Option<Timestamp>,
}

impl UnitFactory {
    pub(super) fn new(definition: &Definition) -> Result<Self, NameError> {
        let retry = definition.unit_retry();
        // After a worker's death the row runs again; its handler decides whether to ask the model
        // again, because it knows whether a call was in flight.
        let policy = Policy { retry, timeout: None, on_lost: OnLost::Rerun, ..Policy::default() };
        let claim = definition.candidates.claim.as_deref().map(claim_prefix);
        let skip_since = definition.candidates.skip_since;
        let has_passes = definition.candidates.priority.is_some();
        let (queue, kind) = (QueueName::new(QUEUE)?, Kind::new(ROW_KIND)?);
        Ok(Self { queue, kind, policy, claim, has_passes, skip_since })
    }

    /// The unit for one row.
    pub(super) fn unit(&self, batch: &Batch, row: &Candidate) -> Result<NewUnit, FillError> {
        let key = exact_key(row)?;
        let (priority, problem) = match priority(row) {
            Ok(priority) => (priority, None),
            // An invalid priority must not stop the other rows: the row's run passes the problem to
            // POST and fails.
            Err(problem) => (Priority::NORMAL, Some(problem)),
        };
        let input = RowInput { key, problem };
        let payload = Payload::json(&input).map_err(|error| row_error(row, &error.to_string()))?;
        let mut unit = NewUnit::new(self.kind.clone(), payload);
        unit.tenant = batch.tenant.clone();
        unit.queue = self.queue.clone();
        unit.priority = priority;
        unit.policy = Some(self.policy.clone());
        unit.dedup = self.dedup(batch, row)?;
        Ok(unit)
    }

    /// The dedup key of a row. A row is skipped while another unit for it is live or ended since
    /// this batch was started: in that case it may have been read as a candidate before that unit
    /// ended. Without a claim, only the units of this batch count.
    fn dedup(&self, batch: &Batch, row: &Candidate) -> Result<Option<Dedup>, FillError> {
        let own = || self.has_passes.then(|| format!(":{}:", batch.id));
        let claim = self.claim.clone().or_else(own);
        let is_claimed = claim.is_some();
        let claim = claim.unwrap_or_default();
        // The key is JSON: the number 1 and the text `1` are two rows.
        let key = format!("{claim}{}", to_json(&row.key));
        if key.len() > MAX_KEY {
            let message = format!("is longer than {} bytes", MAX_KEY - claim.len().min(MAX_KEY));
            return Err(row_error(row, &message));
        }
        let window = DedupWindow::Since(self.skip_since.unwrap_or(batch.initiated_at));
        let dedup = Dedup { key, window, on_duplicate: OnDuplicate::Existing };
        Ok(is_claimed.then_some(dedup))
    }
}

/// The row's key as JSON, if parsing that JSON gives the same key again.
fn exact_key(row: &Candidate) -> Result<Value, FillError> {
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
    Err(row_error(row, "cannot be kept exactly: a key must be a whole number or text"))
}

/// The claim as a key prefix, escaped so that two pairs of claim and key never give the same text.
fn claim_prefix(claim: &str) -> String {
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

fn row_error(row: &Candidate, why: &str) -> FillError {
    FillError::Data(format!("the row with key `{}` {why}", truncated(&show_key(&row.key))))
}
