//! The state machine of a message. Pure: from notes and outcomes to the next state.

use std::time::Duration;

use longshore::{RetryPolicy, Timestamp, half_jitter};
use serde::{Deserialize, Serialize};

use super::filename::MessageKey;

/// An event in a message's life, appended to its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// The data is about to be sent: from here on the message may have been delivered.
    Data {
        /// When it happened.
        at: Timestamp,
    },
    /// The server accepted it.
    Sent {
        /// When it happened.
        at: Timestamp,
        /// The server's reply.
        answer: String,
    },
    /// The server accepted it for some recipients.
    #[serde(rename = "partly")]
    Partial {
        /// When it happened.
        at: Timestamp,
        /// The server's reply.
        answer: String,
        /// Recipients that were accepted.
        reached: Vec<String>,
        /// Recipients that were refused permanently, and why.
        refused: Vec<(String, String)>,
        /// Recipients that were deferred, and why.
        later: Vec<(String, String)>,
    },
    /// The server deferred it, or could not be reached.
    Deferred {
        /// When it happened.
        at: Timestamp,
        /// The reason.
        why: String,
    },
    /// The server refused it permanently, or it is too old.
    Refused {
        /// When it happened.
        at: Timestamp,
        /// The reason.
        why: String,
    },
    /// Its sender crashed or the server did not reply, after the data was sent.
    Lost {
        /// When that was detected.
        at: Timestamp,
    },
    /// A user retried it: its failed attempts and its age count from here.
    Retried {
        /// When it happened.
        at: Timestamp,
    },
}

/// The outcome of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The server accepted it.
    Accepted {
        /// The server's reply.
        answer: String,
    },
    /// The server accepted it for some recipients.
    Partial {
        /// The server's reply.
        answer: String,
        /// Recipients that were accepted.
        reached: Vec<String>,
        /// Recipients that were refused permanently, and why.
        refused: Vec<(String, String)>,
        /// Recipients that were deferred, and why.
        later: Vec<(String, String)>,
    },
    /// Not delivered; a retry may succeed.
    Deferred {
        /// The reason.
        why: String,
    },
    /// Not delivered, permanently.
    Refused {
        /// The reason.
        why: String,
    },
    /// Possibly delivered: the data was sent, and there was no reply.
    Unanswered {
        /// The error that occurred instead.
        why: String,
    },
}

/// What to do with a message that was possibly delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnanswered {
    /// Send it again with the same Message-ID: delivered at least once. Right for almost all mail.
    #[default]
    Again,
    /// Fail it for a user to decide: delivered at most once.
    Fail,
}

/// When a message is sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryPolicy {
    /// Delays between attempts, and the maximum age.
    pub retry: RetryPolicy,
    /// What to do with a message that was possibly delivered.
    pub on_unanswered: OnUnanswered,
}

/// Delays from one minute to one hour, for three days: usual for mail servers.
impl Default for DeliveryPolicy {
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

/// The next state of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextState {
    /// Sent.
    Sent,
    /// Pending, due at this time.
    Pending(Timestamp),
    /// Failed.
    Failed,
}

/// What the next state depends on, besides the outcome.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliveryHistory<'a> {
    pub(super) key: &'a MessageKey,
    pub(super) created: Timestamp,
    pub(super) notes: &'a [Note],
}

/// Decides after a delivery attempt: the note to append, and the next state.
pub(super) fn after_attempt(
    history: DeliveryHistory<'_>,
    outcome: DeliveryOutcome,
    policy: &DeliveryPolicy,
    now: Timestamp,
) -> (Note, NextState) {
    match outcome {
        DeliveryOutcome::Accepted { answer } => (Note::Sent { at: now, answer }, final_state(history.notes)),
        DeliveryOutcome::Partial { answer, reached, refused, later } => {
            let next = match later.first() {
                None => NextState::Failed,
                Some((_, why)) => defer(history, why.clone(), policy, now).1,
            };
            (Note::Partial { at: now, answer, reached, refused, later }, next)
        }
        DeliveryOutcome::Refused { why } => (Note::Refused { at: now, why }, NextState::Failed),
        DeliveryOutcome::Deferred { why } => defer(history, why, policy, now),
        DeliveryOutcome::Unanswered { why } => match policy.on_unanswered {
            OnUnanswered::Fail => {
                (Note::Refused { at: now, why: possibly_delivered(&why) }, NextState::Failed)
            }
            OnUnanswered::Again => defer(history, possibly_delivered(&why), policy, now),
        },
    }
}

/// Decides about a message that a crashed sender left in `sending`. No note if nothing happened.
pub(super) fn after_crash(
    history: DeliveryHistory<'_>,
    policy: &DeliveryPolicy,
    now: Timestamp,
) -> (Option<Note>, NextState) {
    match history.notes.last() {
        Some(Note::Sent { .. }) => (None, final_state(history.notes)),
        Some(Note::Refused { .. }) => (None, NextState::Failed),
        Some(Note::Partial { later, .. }) if later.is_empty() => (None, NextState::Failed),
        Some(Note::Data { .. }) => match policy.on_unanswered {
            // At once: the lost attempt tells nothing about the server.
            OnUnanswered::Again => (Some(Note::Lost { at: now }), NextState::Pending(now)),
            OnUnanswered::Fail => {
                let why = possibly_delivered("its sender crashed");
                (Some(Note::Refused { at: now, why }), NextState::Failed)
            }
        },
        // It was claimed, and no data was sent since.
        None
        | Some(Note::Deferred { .. } | Note::Partial { .. } | Note::Lost { .. } | Note::Retried { .. }) => {
            (None, NextState::Pending(now))
        }
    }
}

/// The final state once the server accepted the remaining recipients: failed if any was refused earlier.
fn final_state(notes: &[Note]) -> NextState {
    let refused = |note: &Note| matches!(note, Note::Partial { refused, .. } if !refused.is_empty());
    if notes[after_last_retry(notes)..].iter().any(refused) { NextState::Failed } else { NextState::Sent }
}

/// The recipients that have neither been accepted nor refused since the last retry by a user. Accepted ones
/// are never written to again.
pub(super) fn remaining<'a>(to: &'a [String], notes: &[Note]) -> Vec<&'a str> {
    let mut remaining: Vec<&str> = to.iter().map(String::as_str).collect();
    let mut refused_earlier: Vec<&str> = Vec::new();
    for note in notes {
        match note {
            Note::Partial { reached, refused, .. } => {
                let is_refused = |to: &&str| refused.iter().any(|(one, _)| one == *to);
                refused_earlier.extend(remaining.iter().copied().filter(|to| is_refused(to)));
                remaining.retain(|to| !is_refused(to) && !reached.iter().any(|one| one == to));
            }
            // It was accepted for all that remained then.
            Note::Sent { .. } => remaining.clear(),
            Note::Retried { .. } => remaining.append(&mut refused_earlier),
            _ => {}
        }
    }
    to.iter().map(String::as_str).filter(|to| remaining.contains(to)).collect()
}

/// The index of the first note after the last retry by a user.
fn after_last_retry(notes: &[Note]) -> usize {
    notes.iter().rposition(|note| matches!(note, Note::Retried { .. })).map_or(0, |at| at + 1)
}

fn possibly_delivered(why: &str) -> String {
    format!("it may have arrived: {why}")
}

fn defer(
    history: DeliveryHistory<'_>,
    why: String,
    policy: &DeliveryPolicy,
    now: Timestamp,
) -> (Note, NextState) {
    let attempt = failed_attempts(history.notes) + 1;
    let since = last_retry(history.notes).unwrap_or(history.created);
    let due = now + backoff(history.key, attempt, &policy.retry);
    if policy.retry.allows(attempt, since, due) {
        return (Note::Deferred { at: now, why }, NextState::Pending(due));
    }
    let why = format!("given up after {attempt} attempts: {why}");
    (Note::Refused { at: now, why }, NextState::Failed)
}

/// Failed attempts since the last retry by a user.
pub(super) fn failed_attempts(notes: &[Note]) -> u32 {
    let counts =
        |note: &&Note| matches!(note, Note::Deferred { .. } | Note::Partial { .. } | Note::Lost { .. });
    let count = notes[after_last_retry(notes)..].iter().filter(counts).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn last_retry(notes: &[Note]) -> Option<Timestamp> {
    notes.iter().rev().find_map(|note| match note {
        Note::Retried { at } => Some(*at),
        _ => None,
    })
}

/// Half of the policy's delay plus jitter by key and attempt: messages that failed together are not retried
/// together.
fn backoff(key: &MessageKey, attempt: u32, policy: &RetryPolicy) -> Duration {
    let share = (key.stable_hash().rotate_left(attempt) >> 32) as f64 / f64::from(u32::MAX);
    half_jitter(policy.ceiling(attempt), share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_micros(1_763_300_000_000_000);

    fn later(seconds: u64) -> Timestamp {
        AT + Duration::from_secs(seconds)
    }

    fn decided(
        notes: &[Note],
        outcome: DeliveryOutcome,
        on_unanswered: OnUnanswered,
        now: Timestamp,
    ) -> (Note, NextState) {
        let key = MessageKey::new("k").expect("a key");
        let policy = DeliveryPolicy { on_unanswered, ..DeliveryPolicy::default() };
        after_attempt(DeliveryHistory { key: &key, created: AT, notes }, outcome, &policy, now)
    }

    fn recovered(notes: &[Note], on_unanswered: OnUnanswered) -> (Option<Note>, NextState) {
        let key = MessageKey::new("k").expect("a key");
        let policy = DeliveryPolicy { on_unanswered, ..DeliveryPolicy::default() };
        after_crash(DeliveryHistory { key: &key, created: AT, notes }, &policy, later(5))
    }

    fn deferred() -> DeliveryOutcome {
        DeliveryOutcome::Deferred { why: "busy".into() }
    }

    #[test]
    fn what_is_deferred_waits_longer_each_time_and_not_for_ever() {
        let mut notes = Vec::new();
        let mut waits = Vec::new();
        let mut now = AT;
        loop {
            let (note, next) = decided(&notes, deferred(), OnUnanswered::Again, now);
            notes.push(note);
            match next {
                NextState::Pending(due) => waits.push(due.since(now)),
                other => {
                    assert_eq!(other, NextState::Failed);
                    break;
                }
            }
            now = now + waits[waits.len() - 1];
        }
        assert!(waits[0] >= Duration::from_secs(30) && waits[0] <= Duration::from_secs(60));
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(3600)));
        assert!(waits[4] > waits[0] * 4, "{waits:?}");
        assert!(now.since(AT) > Duration::from_secs(70 * 3600), "it was tried for three days");
        assert!(matches!(notes.last(), Some(Note::Refused { why, .. }) if why.starts_with("given up after")));
    }

    #[test]
    fn who_asks_for_a_new_beginning_gets_one() {
        let day = 24 * 3600;
        let old = Note::Deferred { at: AT, why: "busy".into() };
        let late = later(30 * day);
        let (_, next) = decided(std::slice::from_ref(&old), deferred(), OnUnanswered::Again, late);
        assert_eq!(next, NextState::Failed);
        let (_, next) = decided(&[old, Note::Retried { at: late }], deferred(), OnUnanswered::Again, late);
        assert!(matches!(next, NextState::Pending(due) if due.since(late) <= Duration::from_secs(60)));
    }

    #[test]
    fn what_may_have_arrived_goes_by_the_policy() {
        let unanswered = || DeliveryOutcome::Unanswered { why: "the line is dead".into() };
        let (note, next) = decided(&[], unanswered(), OnUnanswered::Again, AT);
        assert!(matches!(next, NextState::Pending(_)));
        assert!(matches!(note, Note::Deferred { why, .. } if why.contains("may have arrived")));
        let (note, next) = decided(&[], unanswered(), OnUnanswered::Fail, AT);
        assert_eq!(next, NextState::Failed);
        assert!(matches!(note, Note::Refused { why, .. } if why.contains("may have arrived")));
    }

    fn partly(reached: &str, refused: &[&str], later: &[&str]) -> Note {
        let why = |all: &[&str]| all.iter().map(|to| ((*to).to_owned(), "no".to_owned())).collect();
        let (reached, refused, later) = (vec![reached.to_owned()], why(refused), why(later));
        Note::Partial { at: AT, answer: "250".into(), reached, refused, later }
    }

    #[test]
    fn of_several_recipients_those_are_left_who_neither_got_it_nor_were_refused() {
        let to = ["a", "b", "c"].map(str::to_owned);
        let notes = [partly("a", &["b"], &["c"])];
        assert_eq!(remaining(&to, &notes), ["c"]);
        assert_eq!(remaining(&to, &[]), ["a", "b", "c"]);
        let again = [notes[0].clone(), Note::Retried { at: AT }];
        assert_eq!(remaining(&to, &again), ["b", "c"], "who got it does not get it again");
        let sent = Note::Sent { at: AT, answer: "250".into() };
        let again = [notes[0].clone(), sent, Note::Retried { at: AT }];
        assert_eq!(remaining(&to, &again), ["b"], "nor does who got it with the second try");
    }

    #[test]
    fn a_message_that_somebody_was_refused_is_a_failure_once_all_others_have_it() {
        let taken = || DeliveryOutcome::Accepted { answer: "250".into() };
        let some = [partly("a", &["b"], &["c"])];
        assert_eq!(decided(&some, taken(), OnUnanswered::Again, AT).1, NextState::Failed);
        let later = [partly("a", &[], &["c"])];
        assert_eq!(decided(&later, taken(), OnUnanswered::Again, AT).1, NextState::Sent);
        assert_eq!(recovered(&some, OnUnanswered::Again).1, NextState::Pending(AT + Duration::from_secs(5)));
        assert_eq!(recovered(&[partly("a", &["b"], &[])], OnUnanswered::Again).1, NextState::Failed);
        let sent = Note::Sent { at: AT, answer: "250".into() };
        assert_eq!(recovered(&[some[0].clone(), sent], OnUnanswered::Again).1, NextState::Failed);
    }

    #[test]
    fn what_a_dead_sender_left_is_judged_by_its_last_note() {
        let sent = Note::Sent { at: AT, answer: "250".into() };
        let refused = Note::Refused { at: AT, why: "550".into() };
        let deferred = Note::Deferred { at: AT, why: "450".into() };
        for policy in [OnUnanswered::Again, OnUnanswered::Fail] {
            assert_eq!(recovered(&[], policy), (None, NextState::Pending(later(5))), "never handed over");
            assert_eq!(recovered(&[Note::Data { at: AT }, sent.clone()], policy), (None, NextState::Sent));
            assert_eq!(recovered(std::slice::from_ref(&refused), policy), (None, NextState::Failed));
            let (_, next) = recovered(&[Note::Data { at: AT }, deferred.clone()], policy);
            assert_eq!(next, NextState::Pending(later(5)), "it is known not to have arrived");
        }
        let data = [Note::Data { at: AT }];
        assert_eq!(
            recovered(&data, OnUnanswered::Again),
            (Some(Note::Lost { at: later(5) }), NextState::Pending(later(5)))
        );
        assert_eq!(recovered(&data, OnUnanswered::Fail).1, NextState::Failed);
    }
}
