//! Makes units of sketches.

use longshore_core::unit::{After, Cap, Dedup, DedupWindow, OnDependencyFailure, OnDuplicate};
use longshore_core::{NewUnit, OnLost, Policy, Priority, RetryPolicy, Timestamp, UnitId};

use super::Sketch;
use super::runner::{choose, kind, seconds_of, tenant_of};

/// A unit as sketched, at `now`; it may wait for one of `known`.
pub(super) fn draw(sketch: &Sketch, known: &[UnitId], now: Timestamp) -> NewUnit {
    let later = |seconds: u16| now + seconds_of(seconds);
    let retry = RetryPolicy { max_attempts: sketch.attempts, ..RetryPolicy::default() };
    let on_lost = if sketch.fails_when_lost { OnLost::Fail } else { OnLost::Rerun };
    NewUnit {
        tenant: tenant_of(sketch.tenant),
        priority: Priority::new(sketch.priority).unwrap(),
        dedup: sketch.key.map(|key| dedup(key, sketch.kept_key)),
        not_before: sketch.delay.map(later),
        // Of a unit and one it waits for that expire together, either may be first.
        deadline: sketch.deadline.filter(|_| sketch.after.is_none()).map(later),
        cap: sketch.cap.then(|| Cap { key: "one".into(), limit: 1 }),
        after: after(sketch, known),
        policy: Some(Policy { retry, on_lost, ..Policy::default() }),
        ..NewUnit::new(kind(), b"{}".as_slice())
    }
}

fn dedup(key: u8, kept: bool) -> Dedup {
    let window = if kept { DedupWindow::WhileKept } else { DedupWindow::WhileLive };
    Dedup { key: key.to_string(), window, on_duplicate: OnDuplicate::Existing }
}

fn after(sketch: &Sketch, known: &[UnitId]) -> After {
    let on_failure = match sketch.release {
        true => OnDependencyFailure::Release,
        false => OnDependencyFailure::Cancel,
    };
    let units = sketch.after.and_then(|n| choose(known, n)).into_iter().collect();
    After { units, on_failure }
}
