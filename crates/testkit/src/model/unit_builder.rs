//! Builds units from their specs.

use longshore_core::unit::{
    ConcurrencyCap, Dedup, DedupWindow, Dependencies, OnDependencyFailure, OnDuplicate,
};
use longshore_core::{NewUnit, OnLost, Policy, Priority, RetryPolicy, Timestamp, UnitId};

use super::UnitSpec;
use super::runner::{duration, kind, pick, tenant_of};

/// Builds a unit at `now`; it may depend on one of the `existing` units.
pub(super) fn build_unit(spec: &UnitSpec, existing: &[UnitId], now: Timestamp) -> NewUnit {
    let later = |seconds: u16| now + duration(seconds);
    let retry = RetryPolicy { max_attempts: spec.attempts, ..RetryPolicy::default() };
    let on_lost = if spec.fails_when_lost { OnLost::Fail } else { OnLost::Rerun };
    NewUnit {
        tenant: tenant_of(spec.tenant),
        priority: Priority::new(spec.priority).unwrap(),
        dedup: spec.key.map(|key| dedup(key, spec.keep_key)),
        not_before: spec.delay.map(later),
        // If a unit and its dependency expire together, their order is undefined.
        deadline: spec.deadline.filter(|_| spec.after.is_none()).map(later),
        cap: spec.cap.then(|| ConcurrencyCap { key: "one".into(), limit: 1 }),
        dependencies: after(spec, existing),
        policy: Some(Policy { retry, on_lost, ..Policy::default() }),
        ..NewUnit::new(kind(), b"{}".as_slice())
    }
}

fn dedup(key: u8, keep: bool) -> Dedup {
    let window = if keep { DedupWindow::WhileKept } else { DedupWindow::WhileLive };
    Dedup { key: key.to_string(), window, on_duplicate: OnDuplicate::Existing }
}

fn after(spec: &UnitSpec, existing: &[UnitId]) -> Dependencies {
    let on_failure = match spec.release {
        true => OnDependencyFailure::Release,
        false => OnDependencyFailure::Cancel,
    };
    let units = spec.after.and_then(|n| pick(existing, n)).into_iter().collect();
    Dependencies { units, on_failure }
}
