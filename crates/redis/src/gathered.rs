//! What many of a process ask of a pool at once: one script for all of it.

use std::time::Duration;

use longshore_core::Timestamp;
use longshore_core::permits::{Ask, Done, Job, Otherwise, rank};
use redis::Cmd;

use crate::answer;
use crate::error::damaged;
use crate::server::{Server, micros};

/// The birth, those who are to ask again, those who were handed a permit (id, fence, waited), and of each
/// ask what it came to.
pub(crate) type Raw = (String, Vec<String>, Vec<(String, u64, u64)>, Vec<(u8, u64, u64)>);

/// How long one that asks keeps its place; nothing if it does not wait.
pub(crate) fn place(ask: &Ask) -> Duration {
    match ask.otherwise {
        Otherwise::GoAway => Duration::ZERO,
        Otherwise::Wait(place) => place.max(Duration::from_millis(1)),
    }
}

/// What its priority adds to its rank.
pub(crate) fn behind(ask: &Ask) -> i64 {
    rank(ask.priority, Timestamp::ZERO).as_micros()
}

/// Who asks.
pub(crate) struct Caller<'a> {
    pub(crate) client: &'a str,
    /// All who wait in this process would hear at once of a permit.
    pub(crate) awake: bool,
    /// The pool's birth as this process knows it.
    pub(crate) born: &'a str,
}

/// The arguments of the script.
pub(crate) fn write(jobs: &[Job], caller: &Caller<'_>, server: &Server, command: &mut Cmd) {
    let asks = || jobs.iter().filter_map(Job::ask);
    command.arg("-").arg(asks().next().map_or(0, |ask| ask.max)).arg(caller.client);
    command.arg(&server.run).arg(server.started).arg(u8::from(server.trusted)).arg(caller.born);
    command.arg(u8::from(caller.awake));
    let back = || jobs.iter().flat_map(Job::back);
    command.arg(back().count());
    for (id, late) in back() {
        command.arg(id.to_string()).arg(u8::from(late));
    }
    for ask in asks() {
        command.arg(ask.id.to_string()).arg(ask.weight).arg(behind(ask));
        command.arg(micros(ask.ttl)).arg(micros(place(ask))).arg(&*ask.owner);
    }
}

/// An answer for each job.
pub(crate) fn read(jobs: &[Job], answers: &[(u8, u64, u64)]) -> Vec<Done> {
    let mut answers = answers.iter();
    Job::done(jobs, || {
        let (code, first, second) = answers.next().ok_or_else(|| damaged("too few answers"))?;
        answer::read(*code, *first, *second)
    })
}
