//! A reply that is kept until it is delivered.

use longshore::{Payload, Unit, Verdict};
use serde::{Deserialize, Serialize};

use crate::contract::Reply;

/// What a request's run keeps once there is a reply.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptReply {
    /// The reply, as it is to be delivered.
    pub(super) reply: Reply,
}

impl KeptReply {
    pub(super) fn new(reply: Reply) -> Self {
        Self { reply }
    }

    /// What an earlier run left. One that cannot be read is not taken for nothing: that would pay
    /// twice.
    pub(super) fn of(unit: &Unit) -> Result<Option<Self>, Verdict> {
        let Some(payload) = &unit.checkpoint else { return Ok(None) };
        let kept = payload.parse().map_err(|error: serde_json::Error| {
            Verdict::fail("bad-checkpoint", format!("a kept reply cannot be read: {error}"))
        })?;
        Ok(Some(kept))
    }

    pub(super) fn payload(&self) -> Result<Payload, Verdict> {
        Payload::json(self).map_err(|error| Verdict::fail("bad-reply", error))
    }
}
