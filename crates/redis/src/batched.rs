//! Encodes and decodes the script that runs many requests of one process at once.

use std::time::Duration;

use longshore_core::Timestamp;
use longshore_core::permits::{AcquireRequest, IfFull, PermitReply, PermitRequest, wait_rank};
use redis::Cmd;

use crate::error::damaged;
use crate::reply;
use crate::server_info::{ServerInfo, micros};

/// Creation time of the pool; ids that should ask again; granted permits (id, fence, waited); one
/// reply per acquire.
pub(crate) type RawBatchReply = (String, Vec<String>, Vec<(String, u64, u64)>, Vec<(u8, u64, u64)>);

/// How long a request keeps its place in the queue; zero if it does not wait.
pub(crate) fn queue_ttl(ask: &AcquireRequest) -> Duration {
    match ask.if_full {
        IfFull::Fail => Duration::ZERO,
        IfFull::Wait(queue_ttl) => queue_ttl.max(Duration::from_millis(1)),
    }
}

/// What the priority adds to the rank.
pub(crate) fn rank_offset(ask: &AcquireRequest) -> i64 {
    wait_rank(ask.priority, Timestamp::ZERO).as_micros()
}

/// The process that sends the requests.
pub(crate) struct BatchCaller<'a> {
    pub(crate) client: &'a str,
    /// Whether all waiters of this process are active.
    pub(crate) all_active: bool,
    /// The pool's creation time as this process knows it.
    pub(crate) created_at: &'a str,
}

/// Writes the script's arguments.
pub(crate) fn write_args(
    jobs: &[PermitRequest],
    caller: &BatchCaller<'_>,
    server: &ServerInfo,
    command: &mut Cmd,
) {
    let asks = || jobs.iter().filter_map(PermitRequest::acquire_request);
    command.arg("-").arg(asks().next().map_or(0, |ask| ask.max)).arg(caller.client);
    command
        .arg(&server.run_id)
        .arg(server.started_at)
        .arg(u8::from(server.keeps_data))
        .arg(caller.created_at);
    command.arg(u8::from(caller.all_active));
    let back = || jobs.iter().flat_map(PermitRequest::releases);
    command.arg(back().count());
    for (id, late) in back() {
        command.arg(id.to_string()).arg(u8::from(late));
    }
    for ask in asks() {
        command.arg(ask.id.to_string()).arg(ask.weight).arg(rank_offset(ask));
        command.arg(micros(ask.ttl)).arg(micros(queue_ttl(ask))).arg(&*ask.owner);
    }
}

/// Reads one reply per request.
pub(crate) fn read_replies(jobs: &[PermitRequest], answers: &[(u8, u64, u64)]) -> Vec<PermitReply> {
    let mut answers = answers.iter();
    PermitRequest::replies(jobs, || {
        let (code, first, second) = answers.next().ok_or_else(|| damaged("too few replies"))?;
        reply::parse(*code, *first, *second)
    })
}
