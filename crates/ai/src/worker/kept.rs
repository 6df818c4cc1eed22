//! A reply that is kept until it is delivered.

use longshore::{Payload, Unit, Verdict};

use crate::contract::Reply;

/// The reply that an earlier run left. One that cannot be read is not taken for nothing: that would
/// pay twice.
pub(super) fn recall(unit: &Unit) -> Result<Option<Reply>, Verdict> {
    let Some(kept) = &unit.checkpoint else { return Ok(None) };
    let reply = Reply::parse(kept.as_bytes());
    reply.map(Some).map_err(|error| {
        Verdict::fail("bad-checkpoint", format!("a kept reply cannot be read: {error}"))
    })
}

/// A reply as it is kept and delivered.
pub(super) fn payload(reply: &Reply) -> Result<Payload, Verdict> {
    let json = reply.to_json().map_err(|error| Verdict::fail("bad-reply", error))?;
    Ok(Payload::from(json))
}
