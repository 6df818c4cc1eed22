//! What becomes of a message. Pure: notes and answers go in, the next step comes out.

use std::time::Duration;

use longshore::{RetryPolicy, Timestamp};
use serde::{Deserialize, Serialize};

use super::name::Key;

/// What happened to a message, at the end of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// All of it is about to be with the server: from here on it may have arrived.
    Data {
        /// When.
        at: Timestamp,
    },
    /// The server took it.
    Sent {
        /// When.
        at: Timestamp,
        /// What the server said.
        answer: String,
    },
    /// The server took it for some of its recipients.
    Partly {
        /// When.
        at: Timestamp,
        /// What the server said.
        answer: String,
        /// For whom.
        reached: Vec<String>,
        /// For whom it never will, and why.
        refused: Vec<(String, String)>,
        /// For whom it may later, and why not now.
        later: Vec<(String, String)>,
    },
    /// The server did not take it now, or could not be reached.
    Deferred {
        /// When.
        at: Timestamp,
        /// Why.
        why: String,
    },
    /// The server will never take it, or it became too old.
    Refused {
        /// When.
        at: Timestamp,
        /// Why.
        why: String,
    },
    /// Its sender died, or the server did not answer, when it may have arrived already.
    Lost {
        /// When that was found.
        at: Timestamp,
    },
    /// Somebody wants it tried again from the beginning.
    Retried {
        /// When.
        at: Timestamp,
    },
}

/// What came of handing a message over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server took it.
    Taken {
        /// What it said.
        answer: String,
    },
    /// The server took it for some of its recipients.
    Partly {
        /// What it said.
        answer: String,
        /// For whom.
        reached: Vec<String>,
        /// For whom it never will, and why.
        refused: Vec<(String, String)>,
        /// For whom it may later, and why not now.
        later: Vec<(String, String)>,
    },
    /// It did not arrive, and may later.
    Deferred {
        /// Why.
        why: String,
    },
    /// It did not arrive, and never will.
    Refused {
        /// Why.
        why: String,
    },
    /// It may have arrived: all of it was sent, and nothing was answered.
    Unanswered {
        /// What came instead of an answer.
        why: String,
    },
}

/// What to do with a message that may have arrived already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnanswered {
    /// It is sent again, with the same Message-ID: it arrives at least once. Right for almost all mail.
    #[default]
    Again,
    /// It fails, and somebody has to look: it arrives at most once.
    Fail,
}

/// How often, how long and after what a message is sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Waits between attempts, and the age beyond which none is made.
    pub retry: RetryPolicy,
    /// What to do with a message that may have arrived already.
    pub on_unanswered: OnUnanswered,
}

/// A minute at first, an hour at most, for three days: what mail servers do.
impl Default for Policy {
    fn default() -> Self {
        let retry = RetryPolicy {
            max_attempts: u32::MAX,
            base: Duration::from_secs(60),
            cap: Duration::from_secs(3600),
            max_age: Some(Duration::from_secs(3 * 24 * 3600)),
        };
        Self { retry, on_unanswered: OnUnanswered::Again }
    }
}

/// What to do next with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent.
    Sent,
    /// It is pending again, and due then.
    Again(Timestamp),
    /// It failed.
    Failed,
}

/// A message's past, as far as it decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Past<'a> {
    pub(super) key: &'a Key,
    pub(super) created: Timestamp,
    pub(super) notes: &'a [Note],
}

/// What follows from an answer: what is noted of it, and what to do next.
pub(super) fn judge(
    past: Past<'_>,
    outcome: Outcome,
    policy: &Policy,
    now: Timestamp,
) -> (Note, Verdict) {
    match outcome {
        Outcome::Taken { answer } => (Note::Sent { at: now, answer }, ended(past.notes)),
        Outcome::Partly { answer, reached, refused, later } => {
            let verdict = match later.first() {
                None => Verdict::Failed,
                Some((_, why)) => defer(past, why.clone(), policy, now).1,
            };
            (Note::Partly { at: now, answer, reached, refused, later }, verdict)
        }
        Outcome::Refused { why } => (Note::Refused { at: now, why }, Verdict::Failed),
        Outcome::Deferred { why } => defer(past, why, policy, now),
        Outcome::Unanswered { why } => match policy.on_unanswered {
            OnUnanswered::Fail => (Note::Refused { at: now, why: maybe(&why) }, Verdict::Failed),
            OnUnanswered::Again => defer(past, maybe(&why), policy, now),
        },
    }
}

/// What follows from a file that was found in the hands of a sender who is no more. Nothing is noted where
/// nothing happened.
pub(super) fn recover(past: Past<'_>, policy: &Policy, now: Timestamp) -> (Option<Note>, Verdict) {
    match past.notes.last() {
        Some(Note::Sent { .. }) => (None, ended(past.notes)),
        Some(Note::Refused { .. }) => (None, Verdict::Failed),
        Some(Note::Partly { later, .. }) if later.is_empty() => (None, Verdict::Failed),
        Some(Note::Data { .. }) => match policy.on_unanswered {
            // Soon: nobody knows whether it waits for anything.
            OnUnanswered::Again => (Some(Note::Lost { at: now }), Verdict::Again(now)),
            OnUnanswered::Fail => {
                let why = maybe("its sender died");
                (Some(Note::Refused { at: now, why }), Verdict::Failed)
            }
        },
        // It was in somebody's hands, and no word of it with the server.
        None
        | Some(
            Note::Deferred { .. } | Note::Partly { .. } | Note::Lost { .. } | Note::Retried { .. },
        ) => (None, Verdict::Again(now)),
    }
}

/// Once the server has it for everybody who was left: sent, unless somebody was refused before.
fn ended(notes: &[Note]) -> Verdict {
    let refused = |note: &Note| matches!(note, Note::Partly { refused, .. } if !refused.is_empty());
    if notes[begun(notes)..].iter().any(refused) { Verdict::Failed } else { Verdict::Sent }
}

/// Of these recipients, those who have neither got it nor were refused since somebody last asked for a new
/// beginning.
pub(super) fn left<'a>(to: &'a [String], notes: &[Note]) -> Vec<&'a str> {
    let mut left: Vec<&str> = to.iter().map(String::as_str).collect();
    let mut turned: Vec<&str> = Vec::new();
    for note in notes {
        match note {
            Note::Partly { reached, refused, .. } => {
                let is_refused = |to: &&str| refused.iter().any(|(one, _)| one == *to);
                turned.extend(left.iter().copied().filter(|to| is_refused(to)));
                left.retain(|to| !is_refused(to) && !reached.iter().any(|one| one == to));
            }
            // All who were left then have it.
            Note::Sent { .. } => left.clear(),
            Note::Retried { .. } => left.append(&mut turned),
            _ => {}
        }
    }
    to.iter().map(String::as_str).filter(|to| left.contains(to)).collect()
}

/// Where the notes since the last new beginning are.
fn begun(notes: &[Note]) -> usize {
    notes.iter().rposition(|note| matches!(note, Note::Retried { .. })).map_or(0, |at| at + 1)
}

fn maybe(why: &str) -> String {
    format!("it may have arrived: {why}")
}

fn defer(past: Past<'_>, why: String, policy: &Policy, now: Timestamp) -> (Note, Verdict) {
    let attempt = attempts(past.notes) + 1;
    let since = retried(past.notes).unwrap_or(past.created);
    let due = now + wait(past.key, attempt, &policy.retry);
    if policy.retry.allows(attempt, since, due) {
        return (Note::Deferred { at: now, why }, Verdict::Again(due));
    }
    let why = format!("given up after {attempt} attempts: {why}");
    (Note::Refused { at: now, why }, Verdict::Failed)
}

/// Attempts that came to nothing since somebody last asked for a new beginning.
pub(super) fn attempts(notes: &[Note]) -> u32 {
    let counts = |note: &&Note| {
        matches!(note, Note::Deferred { .. } | Note::Partly { .. } | Note::Lost { .. })
    };
    let count = notes[begun(notes)..].iter().filter(counts).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn retried(notes: &[Note]) -> Option<Timestamp> {
    notes.iter().rev().find_map(|note| match note {
        Note::Retried { at } => Some(*at),
        _ => None,
    })
}

/// Between half of the policy's wait and all of it: messages that failed together do not come together.
fn wait(key: &Key, attempt: u32, policy: &RetryPolicy) -> Duration {
    let half = policy.ceiling(attempt) / 2;
    let share = (key.roll().rotate_left(attempt) >> 32) as f64 / f64::from(u32::MAX);
    half + half.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_micros(1_763_300_000_000_000);

    fn later(seconds: u64) -> Timestamp {
        AT + Duration::from_secs(seconds)
    }

    fn judged(
        notes: &[Note],
        outcome: Outcome,
        on_unanswered: OnUnanswered,
        now: Timestamp,
    ) -> (Note, Verdict) {
        let key = Key::new("k").expect("a key");
        let policy = Policy { on_unanswered, ..Policy::default() };
        judge(Past { key: &key, created: AT, notes }, outcome, &policy, now)
    }

    fn recovered(notes: &[Note], on_unanswered: OnUnanswered) -> (Option<Note>, Verdict) {
        let key = Key::new("k").expect("a key");
        let policy = Policy { on_unanswered, ..Policy::default() };
        recover(Past { key: &key, created: AT, notes }, &policy, later(5))
    }

    fn deferred() -> Outcome {
        Outcome::Deferred { why: "busy".into() }
    }

    #[test]
    fn what_is_deferred_waits_longer_each_time_and_not_for_ever() {
        let mut notes = Vec::new();
        let mut waits = Vec::new();
        let mut now = AT;
        loop {
            let (note, verdict) = judged(&notes, deferred(), OnUnanswered::Again, now);
            notes.push(note);
            match verdict {
                Verdict::Again(due) => waits.push(due.since(now)),
                other => {
                    assert_eq!(other, Verdict::Failed);
                    break;
                }
            }
            now = now + waits[waits.len() - 1];
        }
        assert!(waits[0] >= Duration::from_secs(30) && waits[0] <= Duration::from_secs(60));
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(3600)));
        assert!(waits[4] > waits[0] * 4, "{waits:?}");
        assert!(now.since(AT) > Duration::from_secs(70 * 3600), "it was tried for three days");
        assert!(
            matches!(notes.last(), Some(Note::Refused { why, .. }) if why.starts_with("given up after"))
        );
    }

    #[test]
    fn who_asks_for_a_new_beginning_gets_one() {
        let day = 24 * 3600;
        let old = Note::Deferred { at: AT, why: "busy".into() };
        let late = later(30 * day);
        let (_, verdict) =
            judged(std::slice::from_ref(&old), deferred(), OnUnanswered::Again, late);
        assert_eq!(verdict, Verdict::Failed);
        let (_, verdict) =
            judged(&[old, Note::Retried { at: late }], deferred(), OnUnanswered::Again, late);
        assert!(
            matches!(verdict, Verdict::Again(due) if due.since(late) <= Duration::from_secs(60))
        );
    }

    #[test]
    fn what_may_have_arrived_goes_by_the_policy() {
        let unanswered = || Outcome::Unanswered { why: "the line is dead".into() };
        let (note, verdict) = judged(&[], unanswered(), OnUnanswered::Again, AT);
        assert!(matches!(verdict, Verdict::Again(_)));
        assert!(matches!(note, Note::Deferred { why, .. } if why.contains("may have arrived")));
        let (note, verdict) = judged(&[], unanswered(), OnUnanswered::Fail, AT);
        assert_eq!(verdict, Verdict::Failed);
        assert!(matches!(note, Note::Refused { why, .. } if why.contains("may have arrived")));
    }

    fn partly(reached: &str, refused: &[&str], later: &[&str]) -> Note {
        let why = |all: &[&str]| all.iter().map(|to| ((*to).to_owned(), "no".to_owned())).collect();
        let (reached, refused, later) = (vec![reached.to_owned()], why(refused), why(later));
        Note::Partly { at: AT, answer: "250".into(), reached, refused, later }
    }

    #[test]
    fn of_several_recipients_those_are_left_who_neither_got_it_nor_were_refused() {
        let to = ["a", "b", "c"].map(str::to_owned);
        let notes = [partly("a", &["b"], &["c"])];
        assert_eq!(left(&to, &notes), ["c"]);
        assert_eq!(left(&to, &[]), ["a", "b", "c"]);
        let again = [notes[0].clone(), Note::Retried { at: AT }];
        assert_eq!(left(&to, &again), ["b", "c"], "who got it does not get it again");
        let sent = Note::Sent { at: AT, answer: "250".into() };
        let again = [notes[0].clone(), sent, Note::Retried { at: AT }];
        assert_eq!(left(&to, &again), ["b"], "nor does who got it with the second try");
    }

    #[test]
    fn a_message_that_somebody_was_refused_is_a_failure_once_all_others_have_it() {
        let taken = || Outcome::Taken { answer: "250".into() };
        let some = [partly("a", &["b"], &["c"])];
        assert_eq!(judged(&some, taken(), OnUnanswered::Again, AT).1, Verdict::Failed);
        let later = [partly("a", &[], &["c"])];
        assert_eq!(judged(&later, taken(), OnUnanswered::Again, AT).1, Verdict::Sent);
        assert_eq!(
            recovered(&some, OnUnanswered::Again).1,
            Verdict::Again(AT + Duration::from_secs(5))
        );
        assert_eq!(recovered(&[partly("a", &["b"], &[])], OnUnanswered::Again).1, Verdict::Failed);
        let sent = Note::Sent { at: AT, answer: "250".into() };
        assert_eq!(recovered(&[some[0].clone(), sent], OnUnanswered::Again).1, Verdict::Failed);
    }

    #[test]
    fn what_a_dead_sender_left_is_judged_by_its_last_note() {
        let sent = Note::Sent { at: AT, answer: "250".into() };
        let refused = Note::Refused { at: AT, why: "550".into() };
        let deferred = Note::Deferred { at: AT, why: "450".into() };
        for policy in [OnUnanswered::Again, OnUnanswered::Fail] {
            assert_eq!(
                recovered(&[], policy),
                (None, Verdict::Again(later(5))),
                "never handed over"
            );
            assert_eq!(
                recovered(&[Note::Data { at: AT }, sent.clone()], policy),
                (None, Verdict::Sent)
            );
            assert_eq!(recovered(std::slice::from_ref(&refused), policy), (None, Verdict::Failed));
            let (_, verdict) = recovered(&[Note::Data { at: AT }, deferred.clone()], policy);
            assert_eq!(verdict, Verdict::Again(later(5)), "it is known not to have arrived");
        }
        let data = [Note::Data { at: AT }];
        assert_eq!(
            recovered(&data, OnUnanswered::Again),
            (Some(Note::Lost { at: later(5) }), Verdict::Again(later(5)))
        );
        assert_eq!(recovered(&data, OnUnanswered::Fail).1, Verdict::Failed);
    }
}
