//! The checkpoint of a reply that is not delivered yet.

use longshore::{Payload, SessionId, Unit, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::contract::Reply;

#[derive(Serialize, Deserialize)]
struct Checkpoint<'a> {
    /// The only session that gets the reply.
    reader: Option<SessionId>,
    #[serde(borrow)]
    reply: &'a RawValue,
}

/// The reply of an earlier run and the session that gets it; without a session, any reader of the queue
/// does. An unreadable checkpoint fails the unit: asking again would pay twice.
pub(super) fn recall(unit: &Unit) -> Result<Option<(Reply, Option<SessionId>)>, Verdict> {
    let Some(checkpoint) = &unit.checkpoint else { return Ok(None) };
    let Checkpoint { reader, reply } = serde_json::from_slice(checkpoint.as_bytes()).map_err(unreadable)?;
    let reply = Reply::parse(reply.get().as_bytes()).map_err(unreadable)?;
    Ok(Some((reply, reader)))
}

fn unreadable(error: impl std::fmt::Display) -> Verdict {
    Verdict::fail("bad-checkpoint", format!("the checkpointed reply cannot be read: {error}"))
}

/// A reply as it is delivered.
pub(super) fn payload(reply: &Reply) -> Result<Payload, Verdict> {
    Ok(Payload::from(reply.to_json().map_err(unwritable)?))
}

/// A reply as it is checkpointed.
pub(super) fn checkpoint(reply: &Payload, reader: Option<SessionId>) -> Result<Payload, Verdict> {
    let reply = serde_json::from_slice(reply.as_bytes()).map_err(unwritable)?;
    Ok(Payload::from(serde_json::to_vec(&Checkpoint { reader, reply }).map_err(unwritable)?))
}

fn unwritable(error: impl std::fmt::Display) -> Verdict {
    Verdict::fail("bad-reply", error)
}
