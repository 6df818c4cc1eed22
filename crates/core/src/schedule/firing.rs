//! The unit that a firing sends, and its deterministic ids.

use serde_json::Value;

use super::{FiringScope, UnitTemplate};
use crate::name::{BatchId, ScheduleName, TenantId, UnitId};
use crate::time::Timestamp;
use crate::unit::{Dedup, DedupWindow, NewUnit, OnDuplicate, Payload};

impl UnitTemplate {
    /// The unit that `schedule`, added at `created_at`, sends at `now` for the time `at`.
    pub fn unit(
        &self,
        (tenant, schedule, created_at): (&TenantId, &ScheduleName, Timestamp),
        at: Timestamp,
        now: Timestamp,
    ) -> NewUnit {
        // Shows people where the unit came from; the id alone would deduplicate.
        let key = format!("cron:{schedule}-{}", stamp(at));
        let dedup = Dedup { key, window: DedupWindow::WhileKept, on_duplicate: OnDuplicate::Existing };
        NewUnit {
            id: firing_unit_id(tenant, schedule, created_at, at),
            tenant: tenant.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            dedup: Some(dedup),
            // From now, not from `at`: a time that is caught up late must be able to run.
            deadline: self.deadline.map(|deadline| at.max(now) + deadline),
            weight: self.weight.clone(),
            cap: self.cap.clone(),
            policy: self.policy.clone(),
            ..NewUnit::new(self.kind.clone(), self.payload_for(tenant, schedule, at))
        }
    }

    fn payload_for(&self, tenant: &TenantId, schedule: &ScheduleName, at: Timestamp) -> Payload {
        if self.starts == FiringScope::Unit {
            return self.payload.clone();
        }
        let Ok(Value::Object(mut object)) = self.payload.parse::<Value>() else {
            // Rejected when the schedule was put.
            return self.payload.clone();
        };
        let batch = firing_batch_id(tenant, schedule, at);
        object.insert("batch".into(), Value::String(batch.into()));
        object.insert("fired_for".into(), Value::String(at.to_string()));
        Payload::from(Value::Object(object))
    }
}

/// The id of the unit that a schedule sends for a time: the same in every process. Other tenants do
/// not know when the schedule was added, so they cannot guess the id and send a unit with it first.
pub fn firing_unit_id(
    tenant: &TenantId,
    schedule: &ScheduleName,
    created_at: Timestamp,
    at: Timestamp,
) -> UnitId {
    firing_id(tenant, schedule, created_at, at).at_millis(at.as_micros().max(0).unsigned_abs() / 1_000)
}

/// The full name of the batch that a schedule opens for a time.
pub fn firing_batch_id(tenant: &TenantId, schedule: &ScheduleName, at: Timestamp) -> BatchId {
    let stamp = stamp(at);
    // A long name and a time may exceed the longest name.
    let name = BatchId::new(format!("{schedule}-{stamp}")).unwrap_or_else(|_| {
        let id = *firing_id(tenant, schedule, Timestamp::ZERO, at).as_bytes();
        BatchId::from_number("cron", u128::from_be_bytes(id))
    });
    name.of_tenant(tenant)
}

fn firing_id(tenant: &TenantId, schedule: &ScheduleName, created_at: Timestamp, at: Timestamp) -> UnitId {
    // Names contain no zero byte, so different parts cannot give the same name.
    let name = format!("{tenant}\0{schedule}\0{}\0{}", created_at.as_micros(), at.as_micros());
    UnitId::from_name(b"longshore firing", name.as_bytes())
}

/// `20260102T020000Z`; with a fraction only if the time has one.
fn stamp(at: Timestamp) -> String {
    let text = jiff::Timestamp::from_microsecond(at.as_micros())
        .map_or_else(|_| format!("{}us", at.as_micros()), |time| time.to_string());
    text.replace(['-', ':'], "")
}
