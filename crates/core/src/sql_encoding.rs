//! How SQL stores encode a unit: state codes, flags, and the column for rare attributes. Shared, so
//! that the tables of all stores mean the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::access::Rights;
use crate::error::Result;
use crate::name::UnitId;
use crate::retry::{OnLost, Policy};
use crate::sql_row::{damaged, to_json};
use crate::time::Timestamp;
use crate::unit::{ConcurrencyCap, DedupWindow, NewUnit, OnDependencyFailure, UnitState, Weight};
use crate::unit_state::runs_alone;

/// Ready, but its cap is reached: hidden from claims until another unit with its cap key leaves.
pub const READY_CAPPED: u8 = 7;
/// Ready, but must run alone: hidden from claims that cannot take it.
pub const READY_ALONE: u8 = 8;

/// The code of a state.
pub const fn state_code(state: UnitState) -> u8 {
    match state {
        UnitState::Blocked => 0,
        UnitState::Scheduled => 1,
        UnitState::Ready => 2,
        UnitState::Leased => 3,
        UnitState::Done => 4,
        UnitState::Failed => 5,
        UnitState::Cancelled => 6,
    }
}

/// The code for a unit that enters `state` after `lost` lost runs.
pub fn entry_code(state: UnitState, lost: u32) -> u8 {
    if state == UnitState::Ready && runs_alone(lost) { READY_ALONE } else { state_code(state) }
}

/// The state of a code.
pub fn decode_state(code: u8) -> Result<UnitState> {
    match code {
        READY_CAPPED | READY_ALONE => Ok(UnitState::Ready),
        _ => {
            let state = UnitState::ALL.get(usize::from(code)).copied();
            state.ok_or_else(|| damaged(format!("unit state {code}")))
        }
    }
}

/// All codes of a state.
pub const fn state_codes(state: UnitState) -> &'static [u8] {
    match state {
        UnitState::Blocked => &[0],
        UnitState::Scheduled => &[1],
        UnitState::Ready => &[2, READY_CAPPED, READY_ALONE],
        UnitState::Leased => &[3],
        UnitState::Done => &[4],
        UnitState::Failed => &[5],
        UnitState::Cancelled => &[6],
    }
}

/// Bits of the `flags` column: what an operation must consider besides the plain columns.
pub mod flag {
    /// A claim must check weight, resources, cap, deadline or [`FAILS_IF_LOST`].
    pub const NEEDS_CHECK: i64 = 1;
    /// Other units depend on it.
    pub const HAS_DEPENDANTS: i64 = 2;
    /// Its cancellation was requested.
    pub const CANCEL_REQUESTED: i64 = 4;
    /// Its dedup key is free again once it has ended.
    pub const KEY_WHILE_LIVE: i64 = 8;
    /// Its payload, checkpoint or result is stored outside the row (SQLite): bits 4, 5 and 6.
    pub const OVERFLOW: [i64; 3] = [16, 32, 64];
    /// A failed dependency releases it instead of cancelling it.
    pub const RELEASED_BY_FAILURE: i64 = 128;
    /// It has a checkpoint.
    pub const CHECKPOINTED: i64 = 256;
    /// A client waits for its end.
    pub const AWAITED: i64 = 512;
    /// It keeps its dedup key after its end, until a unit with a later `Since` window takes it.
    pub const KEY_SINCE: i64 = 1024;
    /// It was sent with a tenant's rights. Claims and finishes of plain units ignore this flag.
    pub const SENT_BY_TENANT: i64 = 2048;
    /// Its policy is the one of its stream (SQLite). Claims and finishes of plain units ignore this flag.
    pub const STREAM_POLICY: i64 = 4096;
    /// Its own policy fails it if its worker dies.
    pub const FAILS_IF_LOST: i64 = 8192;
}

/// The flags of a new unit.
pub fn flags(unit: &NewUnit) -> i64 {
    let fails_if_lost = unit.policy.as_ref().is_some_and(|policy| policy.on_lost == OnLost::Fail);
    let plain = unit.weight == Weight::default() && unit.cap.is_none() && unit.deadline.is_none();
    let mut flags = if plain && !fails_if_lost { 0 } else { flag::NEEDS_CHECK };
    if fails_if_lost {
        flags |= flag::FAILS_IF_LOST;
    }
    flags |= match unit.dedup.as_ref().map(|dedup| dedup.window) {
        Some(DedupWindow::WhileLive) => flag::KEY_WHILE_LIVE,
        Some(DedupWindow::Since(_)) => flag::KEY_SINCE,
        Some(DedupWindow::WhileKept) | None => 0,
    };
    if unit.dependencies.on_failure == OnDependencyFailure::Release {
        flags |= flag::RELEASED_BY_FAILURE;
    }
    if unit.awaited {
        flags |= flag::AWAITED;
    }
    if unit.rights == Rights::Tenant {
        flags |= flag::SENT_BY_TENANT;
    }
    flags
}

/// The rights that a stored unit was sent with.
pub fn decode_rights(flags: i64) -> Rights {
    if flags & flag::SENT_BY_TENANT == 0 { Rights::Operator } else { Rights::Tenant }
}

/// The window of the dedup key that a stored unit holds; `sort_key` is its sort key. If the unit has
/// ended, `sort_key` is its end, and the window's own time does not matter.
pub fn dedup_window(flags: i64, sort_key: Timestamp) -> DedupWindow {
    match flags & flag::KEY_SINCE {
        0 => DedupWindow::WhileKept,
        _ => DedupWindow::Since(sort_key),
    }
}

/// Rare attributes of a unit, as one JSON column, so that most rows store NULL.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitAttributes {
    /// The dedup key, as the sender wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Slots, if not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Named resources.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u32>,
    /// The cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<ConcurrencyCap>,
    /// The sender's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The `traceparent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// When it last became ready, in microseconds, if that was not when it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<i64>,
    /// [`crate::Unit::generation`], if it is not 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// [`crate::Unit::batch_generation`], if it is not 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_generation: Option<u32>,
    /// Its dependencies, if their failure cancels it: a retry of its batch looks at them again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<UnitId>,
}

impl UnitAttributes {
    /// The rare attributes of a new unit.
    pub fn of(unit: &NewUnit) -> Self {
        Self {
            key: unit.dedup.as_ref().map(|dedup| dedup.key.clone()),
            slots: (unit.weight.slots != 1).then_some(unit.weight.slots),
            resources: unit.weight.resources.clone(),
            cap: unit.cap.clone(),
            policy: unit.policy.clone(),
            trace: unit.trace.clone(),
            ready_at: None,
            generation: None,
            batch_generation: None,
            after: match unit.dependencies.on_failure {
                OnDependencyFailure::Cancel => unit.dependencies.units.clone(),
                OnDependencyFailure::Release => Vec::new(),
            },
        }
    }

    /// The column's text for a new unit; `None` if it has no rare attribute.
    pub fn encode(unit: &NewUnit) -> Result<Option<String>> {
        Self::of(unit).to_column()
    }

    /// The column's text; `None` if there is no rare attribute.
    pub fn to_column(&self) -> Result<Option<String>> {
        if *self == Self::default() {
            return Ok(None);
        }
        to_json(self).map(Some)
    }

    /// Parses the column.
    pub fn parse(text: Option<&str>) -> Result<Self> {
        let Some(text) = text else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(|error| damaged(format!("a bad unit spec: {error}")))
    }

    /// The unit's weight.
    pub fn weight(&self) -> Weight {
        Weight { slots: self.slots.unwrap_or(1), resources: self.resources.clone() }
    }
}
