//! What others see of the core: a launcher, and whoever asks how it does.

use super::{Core, Member, View};
use crate::board::{Mood, SeatId};
use crate::launch::scale::Present;
use crate::request::{Status, WorkerStatus};

impl Core {
    pub(super) fn view(&self) -> View {
        let present = self.members.iter().filter_map(|(id, member)| {
            let seat = self.board.seat(*id)?;
            Some(Present {
                seat: *id,
                launch: member.launch,
                idle_since: (seat.holds() == 0).then_some(seat.idle_since),
                working: seat.mood != Mood::Draining,
            })
        });
        let present = present.collect();
        let here = self.board.seats().map(|(_, seat)| seat.uid.clone());
        let workers = here.chain(self.expected.iter().cloned()).collect();
        View {
            now: self.now(),
            threads: self.board.threads(),
            present,
            lost: self.doubts.launches(),
            closing: self.ending.is_some(),
            workers,
        }
    }

    pub(super) fn status(&self) -> Status {
        let worker = |(id, member): (&SeatId, &Member)| {
            let seat = self.board.seat(*id)?;
            Some(WorkerStatus {
                uid: seat.uid.clone(),
                host: member.host.clone(),
                pid: member.pid,
                threads: seat.threads,
                load: seat.load(),
                holds: seat.holds() as u64,
                mood: match seat.mood {
                    Mood::Working => "working",
                    Mood::Draining => "draining",
                    Mood::Away(_) => "away",
                }
                .to_owned(),
                average: member.load.average,
            })
        };
        Status {
            pid: std::process::id(),
            up: self.now(),
            mood: if self.ending.is_some() { "draining" } else { "working" }.to_owned(),
            workers: self.members.iter().filter_map(worker).collect(),
            claimed: self.board.len() as u64,
            running: self.members.values().map(|member| u64::from(member.load.running)).sum(),
            ..Status::default()
        }
    }
}
