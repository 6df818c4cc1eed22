//! What a row's run saves before POST, so that no answer is paid for twice.
//!
//! Owns the record in a unit's checkpoint and the decision made from it: whether the run asks the
//! model or goes straight to POST ([`Checkpoint::resume_point`]). Pure; the handler writes.

use std::time::Duration;

use longshore::accounts::NewCall;
use longshore::batch::Sums;
use longshore::{Payload, Unit, UnitId};
use longshore_ai::{Answer, Cost};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pre_post::run_key;

/// The version of the record that this program writes and reads.
const VERSION: u32 = 1;

/// Upper bounds of the latency histogram in milliseconds; the last bucket is `inf`.
pub const LATENCY_BOUNDS: [u64; 15] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000];

/// The state that a run saves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The version of this record: 1.
    pub version: u32,
    /// The answer that POST has not applied yet.
    pub answer: Option<Answer>,
    /// The answer's cost when it arrived: prices may have changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The error to pass to POST instead of an answer, when the model must not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StoredError>,
    /// Calls that have been made and settled.
    pub asked: u32,
    /// Questions that the provider rejected for a lack of credit by a message alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpaid: u32,
    /// Questions that a provider that is unavailable rejected.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unavailable: u32,
    /// How often in a row the rows' database returned the row too late.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late_reads: u32,
    /// The call of a question that is parked, or was sent, in a provider batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<NewCall>,
    /// POST returned FAIL for the answer or error in this record. A later run asks the model again.
    #[serde(default, rename = "judged")]
    pub rejected: bool,
    /// The row's last generation in which POST returned FAIL, and its statements were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<u32>,
    /// The revision of the definition that the run used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The step that the answer, the error or the parked call above belongs to; nothing for the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_step: Option<String>,
    /// The steps that were completed, in order. The answer or error above is that of the next one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// Attempts of the next step that ended in RETRY.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// Replies of all steps to which POST returned RETRY: a part of run keys.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// The step in which POST returned FAIL or RETRY, or had an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_step: Option<String>,
}

/// A step that was completed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its name.
    pub name: String,
    /// Its answer; null if it was left out.
    pub answer: Value,
    /// Input tokens.
    #[serde(default, skip_serializing_if = "is_zero_64")]
    pub tokens_in: u64,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "is_zero_64")]
    pub tokens_out: u64,
    /// The cost.
    #[serde(default)]
    pub cost: Cost,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero_64(number: &u64) -> bool {
    *number == 0
}

/// An error for POST: a retry would not help, or would pay again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredError {
    /// A short, stable code.
    pub code: String,
    /// A message for people.
    pub message: String,
    /// POST may still ask for a retry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// The minimum delay of a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

/// The step at which a run starts.
#[derive(Debug, Clone, PartialEq)]
pub enum ResumePoint {
    /// Ask the model: no call is known to be in flight.
    Ask,
    /// An earlier worker died, perhaps with a call in flight: that call may have been billed.
    MaybeBilled,
    /// Apply this answer.
    Answer(Box<Answer>),
    /// Pass this error to POST.
    Error(StoredError),
}

impl Checkpoint {
    /// The record of a run that has asked nothing.
    pub fn empty() -> Self {
        Self {
            version: VERSION,
            answer: None,
            cost: None,
            error: None,
            parked: None,
            asked: 0,
            unpaid: 0,
            unavailable: 0,
            late_reads: 0,
            rejected: false,
            reported: None,
            revision: None,
            reply_step: None,
            steps: Vec::new(),
            tries: 0,
            retries: 0,
            failed_step: None,
        }
    }

    /// Reads a unit's checkpoint. An unreadable record is an error: treating it as empty would pay
    /// twice.
    pub fn from_unit(unit: &Unit) -> Result<Self, String> {
        let Some(payload) = &unit.checkpoint else { return Ok(Self::empty()) };
        let stored: Self = payload.parse().map_err(|error| error.to_string())?;
        if stored.version > VERSION {
            return Err(format!("it has version {}, this program reads version {VERSION}", stored.version));
        }
        Ok(stored)
    }

    /// The record as a checkpoint payload.
    pub fn to_payload(&self) -> Result<Payload, String> {
        Payload::json(self).map_err(|error| error.to_string())
    }

    /// The step at which a run starts, after `lost` runs died with their workers.
    pub fn resume_point(&self, lost: u32) -> ResumePoint {
        match self {
            Self { rejected: false, answer: Some(answer), .. } => {
                ResumePoint::Answer(Box::new(answer.clone()))
            }
            Self { rejected: false, error: Some(error), .. } => ResumePoint::Error(error.clone()),
            _ if lost > 0 => ResumePoint::MaybeBilled,
            _ => ResumePoint::Ask,
        }
    }

    /// The record after an answer.
    pub fn with_answer(&self, answer: Answer, cost: Cost) -> Self {
        let asked = self.asked.saturating_add(1);
        Self { answer: Some(answer), cost: Some(cost), asked, ..self.at_step() }
    }

    /// The record after POST returned RETRY: the next call has another request id. `unanswered` is
    /// the number of this run's calls that returned no answer.
    pub fn for_retry(&self, unanswered: u32) -> Self {
        Self { asked: self.asked.saturating_add(unanswered), ..self.at_step() }
    }

    /// The empty record at the same step.
    fn at_step(&self) -> Self {
        let Self { tries, retries, unpaid, unavailable, reported, .. } = *self;
        Self { steps: self.steps.clone(), tries, retries, unpaid, unavailable, reported, ..Self::empty() }
    }

    /// Identifies POST's run, and with its name a step's run: a repeat has the same key, whatever interrupted the run
    /// before. The key changes only with a verdict of POST that was recorded: RETRY, or FAIL before a retry by an operator.
    pub fn run_key(&self, unit: UnitId, step: Option<&str>) -> String {
        let generation = self.reported.map_or(1, |reported| reported.saturating_add(1));
        let key = run_key(unit, generation, self.retries.saturating_add(1));
        step.map_or(key.clone(), |step| format!("{key}-{step}"))
    }

    /// The record after POST returned RETRY.
    pub fn retried(&self, unanswered: u32) -> Self {
        let (tries, retries) = (self.tries.saturating_add(1), self.retries.saturating_add(1));
        Self { tries, retries, ..self.for_retry(unanswered) }
    }

    /// The record after a step, with `unanswered` calls that returned no answer.
    pub fn completed(&self, step: StepRecord, unanswered: u32) -> Self {
        let mut next = Self { tries: 0, unavailable: 0, ..self.for_retry(unanswered) };
        next.steps.push(step);
        next
    }

    /// Keeps the steps that are still the first of the definition; `names` has all of its steps, the last without a
    /// name. A reply is kept if the next step is still its own.
    pub fn keep_steps(&mut self, names: &[Option<&str>]) {
        let kept =
            names.iter().zip(&self.steps).take_while(|(name, step)| **name == Some(&step.name)).count();
        let has_reply = self.has_reply() || self.parked.is_some();
        let is_of_another = has_reply && names.get(kept).copied().flatten() != self.reply_step.as_deref();
        if kept < self.steps.len() || is_of_another {
            self.steps.truncate(kept);
            *self = Self { tries: 0, ..self.for_retry(0) };
        }
    }

    /// The record after `unanswered` calls that ended in this error.
    pub fn with_error(&self, error: StoredError, unanswered: u32) -> Self {
        Self { error: Some(error), ..self.for_retry(unanswered) }
    }

    /// The record while this call waits in a provider batch.
    pub fn with_parked_call(&self, call: NewCall) -> Self {
        Self { parked: Some(call), ..self.for_retry(0) }
    }

    /// The record with the step that its reply belongs to.
    pub fn at(self, step: Option<&str>) -> Self {
        Self { reply_step: step.map(str::to_owned), ..self }
    }

    /// The record after POST returned FAIL in this generation of the row.
    pub fn rejected(&self, generation: u32) -> Self {
        Self { rejected: true, reported: Some(generation), ..self.clone() }
    }

    /// Whether it has an answer or an error for POST.
    pub fn has_reply(&self) -> bool {
        self.answer.is_some() || self.error.is_some()
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The amounts that an answer adds to its batch's sums.
pub fn sums(answer: &Answer, cost: Cost) -> Sums {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Sums::from([
        ("answers".to_owned(), 1),
        ("simulated".to_owned(), i64::from(answer.simulated)),
        ("cost_picos".to_owned(), cost.0),
        ("tokens_in".to_owned(), whole(answer.tokens_in)),
        ("tokens_out".to_owned(), whole(answer.tokens_out)),
        (latency_sum(answer.latency_ms), 1),
    ])
}

/// The name of the histogram bucket for this latency.
fn latency_sum(latency_ms: u64) -> String {
    let bound = LATENCY_BOUNDS.into_iter().find(|bound| latency_ms <= *bound);
    latency_name(bound)
}

/// The name of a bucket of the latency histogram; `None` is the last, without a bound.
pub fn latency_name(bound: Option<u64>) -> String {
    match bound {
        Some(bound) => format!("latency_ms_le_{bound}"),
        None => "latency_ms_le_inf".to_owned(),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn answer() -> Answer {
        Answer {
            text: "42".into(),
            model: "m".into(),
            tokens_in: 3,
            tokens_out: 1,
            latency_ms: 20,
            simulated: true,
            ..Answer::default()
        }
    }

    fn error() -> StoredError {
        StoredError { code: "TIMEOUT".into(), message: String::new(), retryable: false, retry_after: None }
    }

    #[test]
    fn what_is_kept_is_applied_and_not_asked_for_again_however_often_workers_die() {
        let stored = Checkpoint::empty().with_answer(answer(), Cost(7));
        let with_error = Checkpoint::empty().with_error(error(), 1);
        for lost in 0..4 {
            assert_eq!(stored.resume_point(lost), ResumePoint::Answer(Box::new(answer())));
            assert_eq!(with_error.resume_point(lost), ResumePoint::Error(error()));
        }
    }

    #[test]
    fn a_worker_that_died_without_leaving_an_answer_may_have_been_billed() {
        let for_retry = Checkpoint::empty().with_answer(answer(), Cost(7)).for_retry(0);
        for stored in [Checkpoint::empty(), for_retry] {
            assert_eq!(stored.resume_point(1), ResumePoint::MaybeBilled);
            assert_eq!(stored.resume_point(0), ResumePoint::Ask);
        }
    }

    #[test]
    fn a_judged_reply_is_asked_for_anew_when_somebody_wants_the_row_again() {
        for stored in
            [Checkpoint::empty().with_answer(answer(), Cost(7)), Checkpoint::empty().with_error(error(), 1)]
        {
            assert_eq!(stored.rejected(1).resume_point(0), ResumePoint::Ask);
            assert_eq!(stored.rejected(1).resume_point(1), ResumePoint::MaybeBilled, "and its worker died");
        }
    }

    #[test]
    fn a_reply_is_kept_only_for_the_step_that_it_belongs_to() {
        let step = StepRecord {
            name: "a".into(),
            answer: Value::Null,
            tokens_in: 0,
            tokens_out: 0,
            cost: Cost::default(),
        };
        let after_a = Checkpoint::empty().completed(step, 0);
        let (a, b, c, last) = (Some("a"), Some("b"), Some("c"), None);
        let kept = |reply_of: Option<&str>, names: &[Option<&str>]| {
            let mut stored = after_a.with_answer(answer(), Cost(7)).at(reply_of);
            stored.keep_steps(names);
            (stored.steps.len(), stored.answer.is_some())
        };
        assert_eq!(kept(last, &[a, last]), (1, true), "unchanged");
        assert_eq!(kept(b, &[a, b, last]), (1, true), "unchanged");
        assert_eq!(kept(b, &[a, b, c, last]), (1, true), "a later step was added");
        assert_eq!(kept(last, &[a, b, last]), (1, false), "a step before it was added");
        assert_eq!(kept(b, &[a, last]), (1, false), "its step was removed");
        assert_eq!(kept(b, &[b, last]), (0, false), "an earlier step was removed");
    }

    #[test]
    fn every_question_that_was_settled_is_counted_once() {
        let first = Checkpoint::empty().with_answer(answer(), Cost(7));
        assert_eq!((first.asked, first.for_retry(0).asked), (1, 1));
        assert_eq!(Checkpoint::empty().for_retry(1).asked, 1);
        assert_eq!(Checkpoint::empty().with_error(error(), 1).rejected(1).for_retry(0).asked, 1);
    }

    #[test]
    fn a_run_key_is_that_of_a_step_or_of_post_and_changes_with_recorded_verdicts_only() {
        let unit = UnitId::new();
        let keys =
            |stored: &Checkpoint| [None, Some("look"), Some("note")].map(|step| stored.run_key(unit, step));
        let begun = Checkpoint::empty();
        let first = keys(&begun);
        assert_eq!(first, [format!("{unit}-1-1"), format!("{unit}-1-1-look"), format!("{unit}-1-1-note")]);
        // Whatever a run saves before POST's verdict.
        let answered = begun.with_answer(answer(), Cost(7));
        for same in [&answered, &begun.with_error(error(), 2), &begun.for_retry(3)] {
            assert_eq!(keys(same), first);
        }
        let done = StepRecord {
            name: "look".into(),
            answer: Value::Null,
            tokens_in: 0,
            tokens_out: 0,
            cost: Cost::default(),
        };
        assert_eq!(keys(&answered.completed(done.clone(), 0)), first);
        // POST returned RETRY for `look`, which was done then: POST's next reply has another key.
        let retried = begun.with_error(error(), 1).retried(0).completed(done, 0);
        assert_eq!(keys(&retried)[0], format!("{unit}-1-2"));
        assert_eq!(retried.tries, 0, "the next step has all its attempts");
        // POST returned FAIL, and an operator retried the row.
        let failed = retried.with_answer(answer(), Cost(7)).rejected(1);
        assert_eq!(keys(&failed)[0], format!("{unit}-2-2"));
        assert_eq!(keys(&failed.with_answer(answer(), Cost(7)))[0], format!("{unit}-2-2"));
    }

    #[test]
    fn latencies_fall_into_the_smallest_bound_that_holds_them() {
        let names = [0, 1, 3, 50_000, 50_001].map(latency_sum);
        let bounds = ["1", "1", "5", "50000", "inf"].map(|end| format!("latency_ms_le_{end}"));
        assert_eq!(names, bounds);
    }

    #[test]
    fn the_record_is_read_back_as_written() {
        let stored = Checkpoint::empty().with_answer(answer(), Cost(7));
        assert_eq!(stored.to_payload().unwrap().parse::<Checkpoint>().unwrap(), stored);
        let plain = r#"{"version":1,"answer":null,"asked":2}"#;
        let plain: Checkpoint = serde_json::from_str(plain).unwrap();
        assert_eq!(plain, Checkpoint { asked: 2, ..Checkpoint::empty() });
    }
}
