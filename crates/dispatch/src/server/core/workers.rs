//! Workers that come, speak and go.

use std::time::Duration;

use longshore::Payload;
use longshore::session::Lease;
use longshore::store::Finish;

use super::{Core, Member};
use crate::board::{Seat, SeatId};
use crate::script;
use crate::server::line::{LineId, Out};
use crate::wire::{FromWorker, Load, Register, ToWorker, Word};

impl Core {
    pub(super) fn on_joined(&mut self, line: LineId, register: Register, out: Out) {
        let now = self.now();
        let Register { uid, host, pid, launch, threads, resources, lifetime, holds, .. } = register;
        self.expected.remove(&uid);
        let seat = Seat::new(uid, threads, resources);
        let settling: Vec<Lease> =
            holds.iter().filter(|lease| self.ends.is_settling(**lease)).copied().collect();
        let (id, mut reunion) = self.board.on_register(now, seat, &holds);
        // Its end is being written: it will hear of that.
        reunion.forget.retain(|lease| !settling.contains(lease));
        tracing::info!(worker = %id, host, pid, threads, "a worker is here");
        self.bodies.untell(id);
        let seated = ToWorker::Seated { beat: self.timing.beat, forget: reunion.forget };
        let _ = out.send(seated);
        if self.ending.is_some() {
            let _ = out.send(ToWorker::Drain);
            self.board.on_draining(id);
        }
        let expires = lifetime.map(|left| now + left);
        let load = Load::default();
        let member = Member { launch, line, out, host, pid, load, expires, dismissed: false };
        if let Some(known) = self.members.insert(id, member) {
            self.lines.remove(&known.line);
        }
        self.lines.insert(line, id);
        self.seats.send_replace(self.members.len());
    }

    pub(super) fn on_words(&mut self, line: LineId, words: FromWorker) {
        let Some(id) = self.lines.get(&line).copied() else { return };
        let now = self.now();
        self.board.on_heartbeat(now, id);
        match words {
            FromWorker::Register(_) => {}
            FromWorker::Beat(load) => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.load = load;
                }
            }
            FromWorker::Said(words) => {
                for word in words {
                    self.on_word(now, id, word);
                }
            }
            FromWorker::Draining => {
                // Systems say so before they kill: what is lost then is not the scripts' fault.
                if let Some(member) = self.members.get_mut(&id) {
                    member.dismissed = true;
                }
                self.board.on_draining(id);
            }
            FromWorker::Leaving => {
                self.board.on_worker_left(now, id);
                self.forget(id);
            }
        }
    }

    fn on_word(&mut self, now: Duration, id: SeatId, word: Word) {
        match word {
            Word::Started(lease) => self.board.on_task_started(id, lease),
            Word::Returned(lease) => {
                self.board.on_task_returned(now, id, lease);
                self.on_returned(lease.unit);
            }
            Word::Ended(lease, report) => {
                self.recalled.remove(&lease.unit);
                let ran = u64::try_from(report.ended - report.started).unwrap_or(0);
                match self.board.on_task_done(now, id, lease, Duration::from_micros(ran)) {
                    Some(task) => {
                        self.drop_body(task.cargo.body);
                        self.report.on_end(&report.end);
                        let mut finish = Finish::new(task.lease, report.outcome());
                        if report.end != script::End::Exited(0) {
                            // A failure has only words: the rest of the story is kept beside it.
                            finish.checkpoint = Payload::json(&*report).ok();
                        }
                        self.ends.push(finish, Some((id, lease)));
                        if task.cargo.is_lone() {
                            self.ends.hurry();
                        }
                    }
                    // Said before, or somebody else's by now.
                    None if self.ends.is_settling(lease) => {}
                    None => self.tell(id, ToWorker::Recorded(vec![lease])),
                }
            }
        }
    }

    pub(super) fn on_gone(&mut self, line: LineId) {
        let Some(id) = self.lines.remove(&line) else { return };
        self.board.on_disconnect(self.now(), id);
    }

    /// Lets a worker go that is not needed any more.
    pub(super) fn release(&mut self, id: SeatId) {
        if let Some(member) = self.members.get_mut(&id) {
            tracing::info!(worker = %id, host = member.host, "a worker is let go");
            member.dismissed = true;
            let _ = member.out.send(ToWorker::Drain);
            self.board.on_draining(id);
        }
    }

    pub(super) fn forget(&mut self, id: SeatId) {
        if let Some(member) = self.members.remove(&id) {
            self.lines.remove(&member.line);
        }
        self.bodies.untell(id);
        self.seats.send_replace(self.members.len());
    }
}
