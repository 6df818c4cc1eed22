//! The unit that a firing sends, and its deterministic ids.

use serde_json::Value;

use super::{FiringScope, UnitTemplate};
use crate::name::{BatchId, ScheduleName, TenantId, UnitId};
use crate::time::Timestamp;
use crate::unit::{Dedup, DedupWindow, NewUnit, OnDuplicate, Payload};

impl UnitTemplate {
    /// The unit that `schedule` sends at `now` for the time `at`.
    pub fn unit(&self, tenant: &TenantId, schedule: &ScheduleName, at: Timestamp, now: Timestamp) -> NewUnit {
        // Shows people where the unit came from; the id alone would deduplicate.
        let key = format!("cron:{schedule}-{}", stamp(at));
        let dedup = Dedup { key, window: DedupWindow::WhileKept, on_duplicate: OnDuplicate::Existing };
        NewUnit {
            id: firing_unit_id(tenant, schedule, at),
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

/// The id of the unit that a schedule sends for a time: the same in every process.
pub fn firing_unit_id(tenant: &TenantId, schedule: &ScheduleName, at: Timestamp) -> UnitId {
    firing_id(tenant, schedule, at).at_millis(at.as_micros().max(0).unsigned_abs() / 1_000)
}

/// The name of the batch that a schedule opens for a time. Batch names are unique in the whole
/// store, so the name contains the tenant, unless it is the default one.
pub fn firing_batch_id(tenant: &TenantId, schedule: &ScheduleName, at: Timestamp) -> BatchId {
    let stamp = stamp(at);
    let name = if *tenant == TenantId::default() {
        format!("{schedule}-{stamp}")
    } else {
        format!("{tenant}:{schedule}-{stamp}")
    };
    // Two long names and a time may exceed the longest name.
    BatchId::new(name).unwrap_or_else(|_| {
        let id = *firing_id(tenant, schedule, at).as_bytes();
        BatchId::from_number("cron", u128::from_be_bytes(id))
    })
}

fn firing_id(tenant: &TenantId, schedule: &ScheduleName, at: Timestamp) -> UnitId {
    // Names contain no zero byte, so different parts cannot give the same name.
    let name = format!("{tenant}\0{schedule}\0{}", at.as_micros());
    UnitId::from_name(b"longshore firing", name.as_bytes())
}

/// `20260102T020000Z`; with a fraction only if the time has one.
fn stamp(at: Timestamp) -> String {
    let text = jiff::Timestamp::from_microsecond(at.as_micros())
        .map_or_else(|_| format!("{}us", at.as_micros()), |time| time.to_string());
    text.replace(['-', ':'], "")
}
