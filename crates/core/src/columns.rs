//! How SQL stores write a unit: state codes, flags, and the column for what few units have.
//!
//! In one place, so that the stores' tables mean the same and can be compared by eye.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine::runs_alone;
use crate::retry::Policy;
use crate::unit::{Cap, DedupWindow, NewUnit, OnDependencyFailure, UnitState, Weight};

/// Ready, but its cap is reached: out of the way of claims until another unit of its key leaves.
pub const PARKED: u8 = 7;
/// Ready, but must run alone: out of the way of claims that cannot take it.
pub const ALONE: u8 = 8;

/// The code under which a state is stored.
pub const fn code(state: UnitState) -> u8 {
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

/// The code for a unit that enters `state` after `lost` losses.
pub fn entry_code(state: UnitState, lost: u32) -> u8 {
    if state == UnitState::Ready && runs_alone(lost) { ALONE } else { code(state) }
}

/// The state behind a code.
pub fn state(code: u8) -> Result<UnitState> {
    match code {
        PARKED | ALONE => Ok(UnitState::Ready),
        _ => {
            let known = UnitState::ALL.get(usize::from(code)).copied();
            known.ok_or_else(|| damaged(format!("unit state {code}")))
        }
    }
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::Broken { message: format!("the database holds {what}"), source: None }
}

/// All codes of a state.
pub const fn codes(state: UnitState) -> &'static [u8] {
    match state {
        UnitState::Blocked => &[0],
        UnitState::Scheduled => &[1],
        UnitState::Ready => &[2, PARKED, ALONE],
        UnitState::Leased => &[3],
        UnitState::Done => &[4],
        UnitState::Failed => &[5],
        UnitState::Cancelled => &[6],
    }
}

/// Bits of the `flags` column: what a verb must look at besides the plain columns.
pub mod flag {
    /// A claim must look closer: weight, resources, cap or deadline.
    pub const SPECIAL: i64 = 1;
    /// Other units wait for it.
    pub const WAITED_ON: i64 = 2;
    /// Someone wants it cancelled.
    pub const CANCEL: i64 = 4;
    /// Its dedup key is free again once it has ended.
    pub const KEY_WHILE_LIVE: i64 = 8;
    /// Its payload, checkpoint or result lies beside the row (SQLite): bits 4, 5 and 6.
    pub const BODY: [i64; 3] = [16, 32, 64];
    /// A failed dependency releases it instead of cancelling it.
    pub const RELEASED_BY_FAILURE: i64 = 128;
    /// A run left a checkpoint.
    pub const CHECKPOINTED: i64 = 256;
    /// Someone waits for its end.
    pub const AWAITED: i64 = 512;
    /// Its dedup key stays its own after its end, until one takes it that looks less far back.
    pub const KEY_SINCE: i64 = 1024;
}

/// The flags of a new unit.
pub fn flags(unit: &NewUnit) -> i64 {
    let plain = unit.weight == Weight::default() && unit.cap.is_none() && unit.deadline.is_none();
    let mut flags = if plain { 0 } else { flag::SPECIAL };
    flags |= match unit.dedup.as_ref().map(|dedup| dedup.window) {
        Some(DedupWindow::WhileLive) => flag::KEY_WHILE_LIVE,
        Some(DedupWindow::Since(_)) => flag::KEY_SINCE,
        Some(DedupWindow::WhileKept) | None => 0,
    };
    if unit.after.on_failure == OnDependencyFailure::Release {
        flags |= flag::RELEASED_BY_FAILURE;
    }
    if unit.awaited {
        flags |= flag::AWAITED;
    }
    flags
}

/// What few units have, in one column of JSON so that most rows have none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The dedup key, as the sender wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The slots it takes, if not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The named resources it takes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u32>,
    /// Its cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Cap>,
    /// The sender's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Spec {
    /// The column's text for a new unit; `None` for a plain one.
    pub fn text(unit: &NewUnit) -> Result<Option<String>> {
        let spec = Self {
            key: unit.dedup.as_ref().map(|dedup| dedup.key.clone()),
            slots: (unit.weight.slots != 1).then_some(unit.weight.slots),
            resources: unit.weight.resources.clone(),
            cap: unit.cap.clone(),
            policy: unit.policy.clone(),
            trace: unit.trace.clone(),
        };
        if spec == Self::default() {
            return Ok(None);
        }
        serde_json::to_string(&spec).map(Some).map_err(damaged)
    }

    /// Reads the column.
    pub fn parse(text: Option<&str>) -> Result<Self> {
        let Some(text) = text else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(|error| damaged(format!("a bad unit spec: {error}")))
    }

    /// What the unit takes up.
    pub fn weight(&self) -> Weight {
        Weight { slots: self.slots.unwrap_or(1), resources: self.resources.clone() }
    }
}
