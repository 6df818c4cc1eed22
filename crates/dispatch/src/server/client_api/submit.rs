//! Stores submissions: a script as a unit, an array as a batch.

use longshore::batch::{FailureLimit, FailureThreshold, NewBatch, OnThreshold};
use longshore::store::SendResult;
use longshore::unit::{ConcurrencyCap, Dependencies, Weight};
use longshore::{
    Batch, Kind, NewUnit, Payload, ResourceAmount, Scope, SendError, Timestamp, UnitId, WhenFull,
};

use super::ClientApi;
use crate::request::{
    ArrayItems, Items, MAX_ARRAY, ServerReply, Submission, SubmitConditions, TimePoint, first_unit_id,
    nth_unit_id,
};
use crate::scheduler::ResourceRequest;
use crate::script::{self, ArrayItem, KIND, Script};

/// Units of an array per write.
pub(super) const CHUNK: usize = 1000;

impl ClientApi {
    /// Stores a submission, and says whether a worker of the pool can ever run it.
    pub(super) async fn submit(&self, submission: Submission) -> Result<ServerReply, String> {
        let script = Payload::json(&submission.script).map_err(|error| error.to_string())?;
        let request = request_of(&submission);
        let result = match &submission.items {
            Items::Once(id) => self.submit_one(*id, script, &submission).await,
            Items::Each { .. } => self.submit_array(script, &submission).await,
        };
        match result {
            Err(SubmitError::Send(SendError::Rejected(rejection))) => Ok(ServerReply::NotTaken(rejection)),
            Err(SubmitError::Send(error)) => Err(error.to_string()),
            Err(SubmitError::Message(message)) => Err(message),
            Ok(Stored { units, existing, batch }) => {
                let unfit = self.find_unfit(vec![request]).await.pop().unwrap_or_default();
                let number = batch.as_ref().map(|batch| batch.number);
                let batch = batch.map(|batch| batch.id);
                Ok(ServerReply::Submitted { units, existing, unfit, number, batch })
            }
        }
    }

    async fn submit_one(
        &self,
        id: UnitId,
        script: Payload,
        submission: &Submission,
    ) -> Result<Stored, SubmitError> {
        let key = submission.conditions.key.clone();
        let unit = NewUnit { id, dedup: key, ..self.unit_template(submission, script).await? };
        let when_full = submission.conditions.full_timeout.map_or(WhenFull::Reject, WhenFull::WaitFor);
        match self.client.send_many(vec![unit], when_full).await?.pop() {
            Some(SendResult::Created(_)) => {
                Ok(Stored { units: 1, existing: None, batch: self.record_single(id, submission).await })
            }
            // The client repeats it because it lost the reply.
            Some(SendResult::Existing(existing_id)) if existing_id == id => {
                Ok(Stored { units: 1, existing: None, batch: self.record_single(id, submission).await })
            }
            Some(SendResult::Existing(existing_id)) => {
                Ok(Stored { units: 1, existing: Some(existing_id), batch: None })
            }
            Some(SendResult::Rejected(rejection)) => Err(SendError::Rejected(rejection).into()),
            None => Err("the store gave no answer".to_owned().into()),
        }
    }

    async fn submit_array(&self, script: Payload, submission: &Submission) -> Result<Stored, SubmitError> {
        let Items::Each { batch, items, max_running, max_failures } = &submission.items else {
            return Ok(Stored { units: 0, existing: None, batch: None });
        };
        let count = items.count();
        if count > MAX_ARRAY {
            return Err(format!("the array has {count} runs, of {MAX_ARRAY} at most").into());
        }
        let scope = Scope::Tenant(submission.tenant.clone());
        let existing = self.client.store().definition(&scope, batch).await;
        // The name is the batch's, which the client may have chosen itself.
        let unnamed = |script: &Script| Script { name: None, ..script.clone() };
        let is_same = |existing: &Payload| {
            let existing = existing.parse::<Script>();
            existing.is_ok_and(|existing| unnamed(&existing) == unnamed(&submission.script))
        };
        if let Ok(Some(existing)) = existing
            && !is_same(&existing)
        {
            let changed = "with another script, other arguments or other options";
            return Err(format!("array `{batch}` exists {changed}; submit under another --name").into());
        }
        let new = NewBatch {
            tenant: submission.tenant.clone(),
            kind: KIND.to_owned(),
            initiated_by: submission.initiated_by.clone(),
            threshold: failure_threshold(*max_failures),
            definition: Some(script),
            ..NewBatch::new(batch.clone())
        };
        let when_full = submission.conditions.full_timeout.map_or(WhenFull::Wait, WhenFull::WaitFor);
        let mut writer = self.client.open_batch(new).await?.when_full(when_full);
        let done: u64 = writer.cursor().parse().unwrap_or(0);
        let items_are_distinct = items.are_distinct();
        let mut items = unit_items(items).skip(usize::try_from(done).unwrap_or(usize::MAX)).peekable();
        let mut sent = done;
        let by_index = items_are_distinct.then(|| first_unit_id(writer.batch()));
        let template = self.unit_template(submission, Payload::from(Vec::new())).await?;
        while items.peek().is_some() {
            let mut units = Vec::with_capacity(CHUNK);
            for item in items.by_ref().take(CHUNK) {
                let payload = Payload::json(&item).map_err(|error| error.to_string())?;
                let id = by_index.map_or_else(UnitId::new, |first| nth_unit_id(first, item.0));
                let cap = array_cap(batch.as_str(), *max_running);
                units.push(NewUnit { id, payload, cap, ..template.clone() });
                sent += 1;
            }
            writer.add(units, sent.to_string()).await?;
        }
        let batch = writer.seal().await?;
        Ok(Stored { units: sent, existing: None, batch: Some(batch) })
    }

    pub(super) async fn unit_template(
        &self,
        submission: &Submission,
        payload: Payload,
    ) -> Result<NewUnit, SubmitError> {
        let kind = Kind::new(KIND).map_err(|error| error.to_string())?;
        let after = Dependencies { units: submission.after.clone(), ..Dependencies::default() };
        let SubmitConditions { not_before, deadline, .. } = &submission.conditions;
        let now = match [not_before, deadline].iter().any(|time| matches!(time, Some(TimePoint::After(_)))) {
            true => self.client.store_time().await.map_err(SendError::from)?,
            false => Timestamp::ZERO,
        };
        Ok(NewUnit {
            tenant: submission.tenant.clone(),
            priority: submission.priority,
            weight: Weight { slots: submission.threads.max(1), resources: submission.resources.clone() },
            dependencies: after,
            not_before: not_before.map(|time| time.resolve(now)),
            deadline: deadline.map(|time| time.resolve(now)),
            // The kind's default policy need not be stored with every unit.
            policy: Some(submission.policy.clone()).filter(|policy| *policy != script::default_policy()),
            // Clients wait for an array's counts, not for each unit.
            awaited: submission.awaited && matches!(submission.items, Items::Once(_)),
            ..NewUnit::new(kind, payload)
        })
    }
}

/// What was stored.
struct Stored {
    units: u64,
    /// The unit that already has the dedup key.
    existing: Option<UnitId>,
    /// Its batch, unless the unit existed.
    batch: Option<Batch>,
}

/// Why a submission failed.
pub(super) enum SubmitError {
    Send(SendError),
    Message(String),
}

impl SubmitError {
    pub(super) fn text(self) -> String {
        match self {
            Self::Send(error) => error.to_string(),
            Self::Message(message) => message,
        }
    }
}

impl From<SendError> for SubmitError {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

impl From<String> for SubmitError {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

/// What each run of a submission needs of its worker.
pub(super) fn request_of(submission: &Submission) -> ResourceRequest {
    ResourceRequest {
        threads: submission.threads.max(1),
        resources: ResourceAmount::of_weight(&submission.resources),
        time: submission.script.time,
        exclusive: false,
    }
}

/// The limit on failures, at which the rest is cancelled.
pub(super) fn failure_threshold(max_failures: Option<u64>) -> Option<FailureThreshold> {
    max_failures.map(|limit| FailureThreshold { limit: FailureLimit::Units(limit), then: OnThreshold::Fail })
}

/// The cap of the units of an array.
pub(super) fn array_cap(array: &str, max_running: Option<u32>) -> Option<ConcurrencyCap> {
    max_running.map(|limit| ConcurrencyCap { key: format!("array {array}"), limit })
}

pub(super) fn unit_items(items: &ArrayItems) -> Box<dyn Iterator<Item = ArrayItem> + Send + '_> {
    match items {
        ArrayItems::Ranges(ranges) => {
            let numbers = ranges.iter().flat_map(|(first, last)| *first..=*last);
            Box::new(numbers.map(|number| ArrayItem(number, None, None)))
        }
        ArrayItems::Lines(lines) => {
            let numbered = (0..).zip(lines);
            Box::new(numbered.map(|(number, line)| ArrayItem(number, Some(line.clone()), None)))
        }
    }
}
