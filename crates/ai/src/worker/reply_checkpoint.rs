//! The checkpoint of a reply that is not delivered yet.

use longshore::{Payload, Unit, Verdict};

use crate::contract::Reply;

/// The reply of an earlier run. An unreadable checkpoint fails the unit: asking again would pay
/// twice.
pub(super) fn recall(unit: &Unit) -> Result<Option<Reply>, Verdict> {
    let Some(checkpoint) = &unit.checkpoint else { return Ok(None) };
    let reply = Reply::parse(checkpoint.as_bytes());
    reply.map(Some).map_err(|error| {
        Verdict::fail("bad-checkpoint", format!("the checkpointed reply cannot be read: {error}"))
    })
}

/// A reply as it is checkpointed and delivered.
pub(super) fn payload(reply: &Reply) -> Result<Payload, Verdict> {
    let json = reply.to_json().map_err(|error| Verdict::fail("bad-reply", error))?;
    Ok(Payload::from(json))
}
