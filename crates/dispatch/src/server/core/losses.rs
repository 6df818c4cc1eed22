//! Workers that are gone, and what becomes of the scripts that they had.

use std::collections::HashMap;
use std::time::Duration;

use longshore::session::Lease;
use longshore::store::Finish;
use longshore::{Outcome, UnitId};

use super::{Core, UNNOTED};
use crate::board::{Seat, SeatId};
use crate::server::doubts::Doubt;

impl Core {
    /// Those that nobody came back with were nobody's, if everybody has come back; else they may have
    /// been begun by whoever is missing.
    pub(super) fn look_for_the_astray(&mut self, now: Duration) {
        let Some(until) = self.astray_until else { return };
        if self.expected.is_empty() && now >= UNNOTED.min(self.timing.reunion) {
            self.board.requeue_astray(now);
        } else if now < until {
            return;
        }
        self.astray_until = None;
        self.expected.clear();
        for task in self.board.give_up_astray() {
            self.drop_body(task.cargo.body);
            let story = "its worker did not come back after the server was restarted";
            self.ends.push(Finish::new(task.lease, Outcome::Lost(story.into())), None);
        }
    }

    pub(super) fn on_lost(&mut self, now: Duration, id: SeatId) {
        let bodies = self.bodies_at(id);
        let lost = self.board.on_worker_lost(now, id);
        let Some(member) = self.members.get(&id) else { return };
        // At the end of its allocation or by request: not the scripts' fault.
        let expected = member.dismissed || member.expires.is_some_and(|at| now >= at);
        let story = format!("worker {} (process {}) was lost", member.host, member.pid);
        let launch = member.launch;
        tracing::warn!(worker = %id, lost = lost.lost.len(), kept = lost.kept, expected, "{story}");
        for body in lost.lost.iter().filter_map(|lease| bodies.get(&lease.unit)) {
            self.drop_body(*body);
        }
        let leases = lost.lost;
        match (expected, launch) {
            (true, _) => {
                self.judged(
                    leases.into_iter().map(|lease| (lease, Outcome::Interrupted)).collect(),
                );
            }
            (false, Some(launch)) if !self.doubt.is_zero() && self.ending.is_none() => {
                let until = now + self.doubt;
                if !leases.is_empty() {
                    self.doubts.push(Doubt { launch, leases, story, until });
                }
            }
            (false, _) => {
                let outcome = Outcome::Lost(story);
                self.judged(leases.into_iter().map(|lease| (lease, outcome.clone())).collect());
            }
        }
        self.forget(id);
    }

    pub(super) fn judged(&mut self, ends: Vec<(Lease, Outcome)>) {
        for (lease, outcome) in ends {
            self.ends.push(Finish::new(lease, outcome), None);
        }
    }

    /// What the tasks of a worker are made of.
    pub(super) fn bodies_at(&self, id: SeatId) -> HashMap<UnitId, u64> {
        let units = self.board.seat(id).map_or_else(Vec::new, Seat::tasks).into_iter();
        units.filter_map(|unit| Some((unit, self.board.task(unit)?.cargo.body))).collect()
    }
}
