//! What a row's run keeps before POST, so that no answer is paid for twice.
//!
//! Owns the record in a unit's checkpoint and the one decision that is made from it: whether the
//! row is asked about, or goes straight to POST ([`Checkpoint::recall`]). Pure; the handler writes.

use longshore::batch::Sums;
use longshore::ledger::NewCall;
use longshore::{Payload, Unit};
use longshore_ai::{Answer, Cost};
use serde::{Deserialize, Serialize};

/// The form of the record that this program writes and reads.
const VERSION: u32 = 1;

/// Upper bounds of the latency histogram, in milliseconds; beyond the last comes `inf`.
pub const LATENCY_BOUNDS: [u64; 15] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000];

/// What a run has reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The form of this record: 1.
    pub version: u32,
    /// The answer, if there is one that is still to be applied.
    pub answer: Option<Answer>,
    /// What it cost when it came: prices may have changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Why there is none and none is to be asked for: POST is to be told, or is being told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<KeptError>,
    /// How many questions have been asked and settled.
    pub asked: u32,
    /// The call of a question that is parked until it goes with a provider's batch, or is out with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<NewCall>,
    /// POST has said FAIL to it, and that was recorded with it. Whoever runs the row again wants it
    /// asked anew.
    #[serde(default)]
    pub judged: bool,
}

/// An error that asking again would not mend, or not without paying again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptError {
    /// Short and stable.
    pub code: String,
    /// In words.
    pub message: String,
    /// It was told before it was known whether to ask again: POST may say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

/// What a run starts from.
#[derive(Debug, Clone, PartialEq)]
pub enum Recalled {
    /// Ask; nothing is known to be out.
    Ask,
    /// An earlier worker died, perhaps while its question was out: it may have been billed.
    MaybeBilled,
    /// There is an answer: apply it.
    Answer(Answer),
    /// There is an error that POST has not heard of yet.
    Error(KeptError),
}

impl Checkpoint {
    /// Nothing asked yet.
    pub fn empty() -> Self {
        let (answer, cost, error, parked) = (None, None, None, None);
        Self { version: VERSION, answer, cost, error, parked, asked: 0, judged: false }
    }

    /// Reads a unit's checkpoint. A record that cannot be read is an error: taking it for nothing
    /// would pay twice.
    pub fn of(unit: &Unit) -> Result<Self, String> {
        let Some(payload) = &unit.checkpoint else { return Ok(Self::empty()) };
        let kept: Self = payload.parse().map_err(|error| error.to_string())?;
        if kept.version > VERSION {
            return Err(format!("it is of version {}, this program knows {VERSION}", kept.version));
        }
        Ok(kept)
    }

    /// The record as it is kept.
    pub fn payload(&self) -> Result<Payload, String> {
        Payload::json(self).map_err(|error| error.to_string())
    }

    /// What a run starts from, after `lost` runs died with their workers.
    pub fn recall(&self, lost: u32) -> Recalled {
        match self {
            Self { judged: false, answer: Some(answer), .. } => Recalled::Answer(answer.clone()),
            Self { judged: false, error: Some(error), .. } => Recalled::Error(error.clone()),
            _ if lost > 0 => Recalled::MaybeBilled,
            _ => Recalled::Ask,
        }
    }

    /// After a question was answered.
    pub fn answered(&self, answer: Answer, cost: Cost) -> Self {
        let asked = self.asked.saturating_add(1);
        Self { answer: Some(answer), cost: Some(cost), asked, ..Self::empty() }
    }

    /// After POST said RETRY: it is asked anew, with another request id. `unanswered` are the
    /// questions of this run that brought no answer.
    pub fn retried(&self, unanswered: u32) -> Self {
        Self { asked: self.asked.saturating_add(unanswered), ..Self::empty() }
    }

    /// After `unanswered` questions that came to nothing but this error.
    pub fn unheard(&self, error: KeptError, unanswered: u32) -> Self {
        Self { error: Some(error), ..self.retried(unanswered) }
    }

    /// While the question of this call is parked.
    pub fn parked(&self, call: NewCall) -> Self {
        Self { parked: Some(call), ..self.retried(0) }
    }

    /// After POST said FAIL to what is kept.
    pub fn judged(&self) -> Self {
        Self { judged: true, ..self.clone() }
    }

    /// Whether there is something in it that POST is to be told.
    pub fn holds_a_reply(&self) -> bool {
        self.answer.is_some() || self.error.is_some()
    }
}

/// What an answer adds to its batch's sums.
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

/// The sum that counts answers that took about this long.
fn latency_sum(latency_ms: u64) -> String {
    let bound = LATENCY_BOUNDS.into_iter().find(|bound| latency_ms <= *bound);
    latency_name(bound)
}

/// The name of a part of the latency histogram; `None` is the last, without a bound.
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

    fn error() -> KeptError {
        KeptError { code: "TIMEOUT".into(), message: String::new(), retryable: false }
    }

    #[test]
    fn what_is_kept_is_applied_and_not_asked_for_again_however_often_workers_die() {
        let kept = Checkpoint::empty().answered(answer(), Cost(7));
        let unheard = Checkpoint::empty().unheard(error(), 1);
        for lost in 0..4 {
            assert_eq!(kept.recall(lost), Recalled::Answer(answer()));
            assert_eq!(unheard.recall(lost), Recalled::Error(error()));
        }
    }

    #[test]
    fn a_worker_that_died_without_leaving_an_answer_may_have_been_billed() {
        let retried = Checkpoint::empty().answered(answer(), Cost(7)).retried(0);
        for kept in [Checkpoint::empty(), retried] {
            assert_eq!(kept.recall(1), Recalled::MaybeBilled);
            assert_eq!(kept.recall(0), Recalled::Ask);
        }
    }

    #[test]
    fn a_judged_reply_is_asked_for_anew_when_somebody_wants_the_row_again() {
        for kept in [
            Checkpoint::empty().answered(answer(), Cost(7)),
            Checkpoint::empty().unheard(error(), 1),
        ] {
            assert_eq!(kept.judged().recall(0), Recalled::Ask);
            assert_eq!(kept.judged().recall(1), Recalled::MaybeBilled, "and its worker died");
        }
    }

    #[test]
    fn every_question_that_was_settled_is_counted_once() {
        let first = Checkpoint::empty().answered(answer(), Cost(7));
        assert_eq!((first.asked, first.retried(0).asked), (1, 1));
        assert_eq!(Checkpoint::empty().retried(1).asked, 1);
        assert_eq!(Checkpoint::empty().unheard(error(), 1).judged().retried(0).asked, 1);
    }

    #[test]
    fn latencies_fall_into_the_smallest_bound_that_holds_them() {
        let names = [0, 1, 3, 50_000, 50_001].map(latency_sum);
        let bounds = ["1", "1", "5", "50000", "inf"].map(|end| format!("latency_ms_le_{end}"));
        assert_eq!(names, bounds);
    }

    #[test]
    fn the_record_is_read_back_as_written() {
        let kept = Checkpoint::empty().answered(answer(), Cost(7));
        assert_eq!(kept.payload().unwrap().parse::<Checkpoint>().unwrap(), kept);
        let plain = r#"{"version":1,"answer":null,"asked":2}"#;
        let plain: Checkpoint = serde_json::from_str(plain).unwrap();
        assert_eq!(plain, Checkpoint { asked: 2, ..Checkpoint::empty() });
    }
}
