//! Losses that are not judged yet: why a worker's job ended, its system knows.
//!
//! A job that was cancelled, made way for another or had no time left is not the fault of the scripts
//! that it ran: they run again, and that is not counted. A system may take a while to say so, and may
//! not know; then the loss counts.

use std::time::Duration;

use longshore::Outcome;
use longshore::session::Lease;

use crate::system::Cause;

/// What was lost with one worker.
#[derive(Debug)]
pub(super) struct Doubt {
    /// What the worker was launched as.
    pub(super) launch: u64,
    /// What it had begun.
    pub(super) leases: Vec<Lease>,
    /// What is known of it so far.
    pub(super) story: String,
    /// When it is judged at the latest, on the board's clock.
    pub(super) until: Duration,
}

impl Doubt {
    /// The end of each of its runs.
    fn judge(self, cause: Cause) -> impl Iterator<Item = (Lease, Outcome)> {
        let outcome = match innocent(cause) {
            true => Outcome::Interrupted,
            false => Outcome::Lost(format!("{}{}", self.story, words(cause))),
        };
        self.leases.into_iter().map(move |lease| (lease, outcome.clone()))
    }
}

/// Those of a server.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<Doubt>);

impl Doubts {
    pub(super) fn push(&mut self, doubt: Doubt) {
        self.0.push(doubt);
    }

    /// Whose jobs are to be asked about.
    pub(super) fn launches(&self) -> Vec<u64> {
        self.0.iter().map(|doubt| doubt.launch).collect()
    }

    /// Judges what was lost with this launch.
    pub(super) fn on_fate(&mut self, launch: u64, cause: Cause) -> Vec<(Lease, Outcome)> {
        self.judge_if(|doubt| doubt.launch == launch, cause)
    }

    /// Judges what nobody has said anything about in time.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<(Lease, Outcome)> {
        self.judge_if(|doubt| now >= doubt.until, Cause::Unknown)
    }

    /// Judges all that is left.
    pub(super) fn all(&mut self) -> Vec<(Lease, Outcome)> {
        self.judge_if(|_| true, Cause::Unknown)
    }

    fn judge_if(&mut self, is_due: impl Fn(&Doubt) -> bool, cause: Cause) -> Vec<(Lease, Outcome)> {
        let (due, left) = std::mem::take(&mut self.0).into_iter().partition(is_due);
        self.0 = left;
        let due: Vec<Doubt> = due;
        due.into_iter().flat_map(|doubt| doubt.judge(cause)).collect()
    }
}

/// Whether scripts have no part in such an end.
fn innocent(cause: Cause) -> bool {
    match cause {
        Cause::Cancelled | Cause::TimeLimit | Cause::Preempted => true,
        Cause::Itself | Cause::Memory | Cause::NodeLost | Cause::Unknown => false,
    }
}

fn words(cause: Cause) -> &'static str {
    match cause {
        Cause::Memory => ": its job had no memory left",
        Cause::NodeLost => ": its node was lost",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use longshore::UnitId;

    use super::*;

    fn doubt(launch: u64) -> Doubt {
        let leases = vec![Lease { unit: UnitId::new(), fence: 1 }];
        Doubt { launch, leases, story: "lost".into(), until: Duration::from_secs(launch) }
    }

    #[test]
    fn only_what_scripts_may_have_a_part_in_counts() {
        let all = [
            (Cause::Cancelled, Outcome::Interrupted),
            (Cause::Preempted, Outcome::Interrupted),
            (Cause::TimeLimit, Outcome::Interrupted),
            (Cause::Itself, Outcome::Lost("lost".into())),
            (Cause::Unknown, Outcome::Lost("lost".into())),
            (Cause::Memory, Outcome::Lost("lost: its job had no memory left".into())),
            (Cause::NodeLost, Outcome::Lost("lost: its node was lost".into())),
        ];
        for (cause, wanted) in all {
            let mut doubts = Doubts(vec![doubt(1), doubt(2)]);
            let judged = doubts.on_fate(2, cause);
            assert!(matches!(&judged[..], [(_, outcome)] if *outcome == wanted), "{judged:?}");
            assert_eq!(doubts.launches(), [1]);
        }
    }

    #[test]
    fn what_nobody_can_tell_counts_after_a_while() {
        let mut doubts = Doubts(vec![doubt(1), doubt(2)]);
        let judged = doubts.overdue(Duration::from_secs(1));
        assert!(matches!(&judged[..], [(_, Outcome::Lost(_))]), "{judged:?}");
        assert_eq!(doubts.all().len(), 1);
        assert_eq!(doubts.launches(), [0; 0]);
    }
}
