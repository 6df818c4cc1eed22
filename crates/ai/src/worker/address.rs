//! Where a reply goes.

use longshore::ledger::Ledger;
use longshore::store::{Refusal, Sent};
use longshore::{Kind, NewUnit, Payload, QueueName, Scope, TenantId, Unit, UnitId, Verdict};

use super::REPLY_KIND;
use crate::contract::{Libraries, Malformed, ReplyTo};

/// A reply queue of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) tenant: TenantId,
    pub(super) queue: QueueName,
}

impl Address {
    /// A tenant's reply queue; an error if it is another tenant's.
    pub(super) fn of(
        tenant: &TenantId,
        to: &ReplyTo,
        libraries: &Libraries,
    ) -> Result<Self, Malformed> {
        Ok(Self { tenant: tenant.clone(), queue: to.queue(tenant, libraries)? })
    }

    fn scope(&self) -> Scope {
        Scope::Tenant(self.tenant.clone())
    }

    /// Delivers the reply to a unit, or says that nobody reads it any more. A second time it is
    /// recognised, and not delivered again.
    pub(super) async fn send(
        &self,
        ledger: &dyn Ledger,
        to: &Unit,
        reply: Payload,
    ) -> Result<(), Verdict> {
        self.send_as(ledger, following(to.id, Following::Reply), reply).await
    }

    /// Delivers a unit that was given its identity.
    pub(super) async fn send_as(
        &self,
        ledger: &dyn Ledger,
        id: UnitId,
        payload: Payload,
    ) -> Result<(), Verdict> {
        let kind = Kind::new(REPLY_KIND).map_err(|error| Verdict::fail("bad-kind", error))?;
        let unit = NewUnit {
            id,
            tenant: self.tenant.clone(),
            queue: self.queue.clone(),
            ..NewUnit::new(kind, payload)
        };
        match ledger.reply(&self.scope(), unit).await {
            Ok(Some(Sent::Refused(refusal))) => Err(not_taken(&refusal)),
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                let why = format!("reply queue `{}` is gone", self.queue);
                Err(Verdict::fail("REPLY_QUEUE_GONE", why))
            }
            Err(error) if error.is_retryable() => Err(Verdict::retry("store", error)),
            Err(error) => Err(Verdict::retry("reply", error)),
        }
    }
}

/// The reply queue is full: it is read, so there will be room.
fn not_taken(refusal: &Refusal) -> Verdict {
    Verdict::retry("reply", format!("the reply queue does not take it: {refusal}"))
}

/// Which of the units that follow from another is meant. Those of one queue are read in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Following {
    /// A part of the reply, by the run that wrote it and its number there.
    Part { run: u32, seq: u64 },
    /// The reply, after all parts.
    Reply,
}

impl Following {
    /// Its place, in 24 bits. Parts beyond what has a place share the last one.
    fn place(self) -> u64 {
        match self {
            Self::Part { run, seq } => (u64::from(run.min(0xFE)) << 16) | seq.min(0xFFFF),
            Self::Reply => 0xFF_FFFF,
        }
    }
}

/// The identity of a unit that follows from another: the same however often it is made, and in the
/// order of [`Following`], since a queue gives what was sent at the same time by identity.
pub(super) fn following(id: UnitId, which: Following) -> UnitId {
    let mut bytes = *id.as_bytes();
    // The last eight bytes are random but for the variant's two bits.
    let tail = u64::from_be_bytes([
        bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15],
    ]);
    // Other random bits than the unit's own: nothing that follows from it is taken for it.
    let random = (tail ^ 0x1E37_79B9_7F00_0000) & !0xFF_FFFF;
    bytes[8..].copy_from_slice(&(random | which.place()).to_be_bytes());
    UnitId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_a_unit_is_always_the_same_in_order_and_never_twice() {
        let id = UnitId::new();
        let parts = |run| (1..500).map(move |seq| Following::Part { run, seq });
        let which = parts(0).chain(parts(1)).chain(parts(7)).chain([Following::Reply]);
        let all: Vec<UnitId> = which.map(|which| following(id, which)).collect();
        assert_eq!(all[3], following(id, Following::Part { run: 0, seq: 4 }));
        assert!(all.is_sorted_by(|a, b| a < b) && !all.contains(&id));
        assert_ne!(all.last(), Some(&following(UnitId::new(), Following::Reply)));
    }
}
