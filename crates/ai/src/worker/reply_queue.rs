//! Sends replies to reply queues.

use longshore::accounts::Ledger;
use longshore::store::{SendRejection, SendResult};
use longshore::{Kind, NewUnit, Payload, QueueName, Scope, SessionId, TenantId, Unit, UnitId, Verdict};

use super::REPLY_KIND;
use crate::contract::{ContractError, Libraries, ReplyTo};

/// A reply queue of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReplyQueue {
    pub(super) tenant: TenantId,
    pub(super) queue: QueueName,
    /// The session that had the queue open when the request was accepted. Another session that opens a
    /// queue of the same name gets no reply to it.
    pub(super) reader: Option<SessionId>,
}

impl ReplyQueue {
    /// A tenant's reply queue; fails if it belongs to another tenant.
    pub(super) fn of(tenant: &TenantId, to: &ReplyTo, libraries: &Libraries) -> Result<Self, ContractError> {
        Ok(Self { tenant: tenant.clone(), queue: to.queue(tenant, libraries)?, reader: None })
    }

    fn scope(&self) -> Scope {
        Scope::Tenant(self.tenant.clone())
    }

    /// Fails if the queue is closed, else remembers its reader. Called before a question is paid for;
    /// [`Self::send`] checks it again.
    pub(super) async fn require_open(&mut self, ledger: &dyn Ledger) -> Result<(), Verdict> {
        let open = ledger.reply_queues(&self.scope(), &self.tenant, Some(self.queue.clone())).await;
        let open = open.map_err(|error| Verdict::retry("store", error))?;
        self.reader = Some(open.first().ok_or_else(|| self.gone())?.session);
        Ok(())
    }

    fn gone(&self) -> Verdict {
        Verdict::fail("REPLY_QUEUE_GONE", format!("reply queue `{}` is not open", self.queue))
    }

    /// Delivers a unit's reply; fails if the queue is closed. A repeat is recognised by its id and
    /// not delivered again.
    pub(super) async fn send(&self, ledger: &dyn Ledger, to: &Unit, reply: Payload) -> Result<(), Verdict> {
        self.send_as(ledger, derived_id(to.id, DerivedUnit::Reply), reply).await
    }

    /// Delivers a unit with a given id.
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
        match ledger.send_reply(&self.scope(), unit, self.reader).await {
            Ok(Some(SendResult::Rejected(refusal))) => Err(queue_full(&refusal)),
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(self.gone()),
            Err(error) if error.is_retryable() => Err(Verdict::retry("store", error)),
            Err(error) => Err(Verdict::retry("reply", error)),
        }
    }
}

/// The reply queue is full: its reader is alive, so a retry will succeed.
fn queue_full(refusal: &SendRejection) -> Verdict {
    Verdict::retry("reply", format!("the reply queue rejected it: {refusal}"))
}

/// A unit derived from a request. A queue delivers them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DerivedUnit {
    /// A part of the reply: the run that wrote it, and its number within the run.
    Part { run: u32, seq: u64 },
    /// The reply, after all parts.
    Reply,
}

impl DerivedUnit {
    /// Its order, in 24 bits. Parts beyond the range share the last value.
    fn order(self) -> u64 {
        match self {
            Self::Part { run, seq } => (u64::from(run.min(0xFE)) << 16) | seq.min(0xFFFF),
            Self::Reply => 0xFF_FFFF,
        }
    }
}

/// The id of a unit derived from another: always the same, and ordered as [`DerivedUnit`], because a
/// queue orders units with the same timestamp by id.
pub(super) fn derived_id(id: UnitId, which: DerivedUnit) -> UnitId {
    let mut bytes = *id.as_bytes();
    // The last eight bytes are random except for the variant's two bits.
    let tail = u64::from_be_bytes([
        bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15],
    ]);
    // Changes the random bits, so that a derived id never equals the unit's own.
    let random = (tail ^ 0x1E37_79B9_7F00_0000) & !0xFF_FFFF;
    bytes[8..].copy_from_slice(&(random | which.order()).to_be_bytes());
    UnitId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_a_unit_is_always_the_same_in_order_and_never_twice() {
        let id = UnitId::new();
        let parts = |run| (1..500).map(move |seq| DerivedUnit::Part { run, seq });
        let which = parts(0).chain(parts(1)).chain(parts(7)).chain([DerivedUnit::Reply]);
        let all: Vec<UnitId> = which.map(|which| derived_id(id, which)).collect();
        assert_eq!(all[3], derived_id(id, DerivedUnit::Part { run: 0, seq: 4 }));
        assert!(all.is_sorted_by(|a, b| a < b) && !all.contains(&id));
        assert_ne!(all.last(), Some(&derived_id(UnitId::new(), DerivedUnit::Reply)));
    }
}
