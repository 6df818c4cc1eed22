//! Schedules: which unit is sent at which times, and what happens to times that were missed or
//! overlap.
//!
//! This module knows neither cron expressions nor time zones. Its caller passes a function that
//! returns the time after another (the engine's `CronSchedule`), so that every policy can be reached
//! from data. [`decide`] is the policy. [`UnitTemplate::unit`] makes the unit of one firing, with an id
//! derived from tenant, schedule and time: a firing that is repeated after a lost answer is
//! recognised.

mod firing;
mod policy;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::{Kind, QueueName, ScheduleName, TenantId};
use crate::priority::Priority;
use crate::retry::Policy;
use crate::store::ScheduleSwitch;
use crate::time::Timestamp;
use crate::unit::{ConcurrencyCap, Payload, Weight, check_text};

pub use firing::{firing_batch_id, firing_unit_id};
pub use policy::{MISSED_AFTER, PreviousFiring, ScheduleDecision, ScheduleStep, decide};

/// Most missed times that are caught up, one by one.
pub const MAX_CATCH_UP: u32 = 1_000;

/// Most bytes of a schedule's cron expression and of its time zone.
pub const MAX_PLAN_TEXT: usize = 512;

/// What happens to times that passed while nothing could fire: no worker ran, or the store was
/// unavailable. A time counts as missed once it is [`MISSED_AFTER`] old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissedPolicy {
    /// They are skipped.
    Skip,
    /// One firing stands for all of them.
    #[default]
    Once,
    /// Each fires, oldest first; only the newest of more than this many.
    All(u32),
}

impl fmt::Display for MissedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip => f.pad("skip"),
            Self::Once => f.pad("once"),
            Self::All(limit) => f.pad(&format!("all:{limit}")),
        }
    }
}

/// Parses `skip`, `once`, `all` (at most a hundred) or `all:LIMIT`.
impl FromStr for MissedPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "skip" => return Ok(Self::Skip),
            "once" => return Ok(Self::Once),
            "all" => return Ok(Self::All(100)),
            _ => {}
        }
        let limit = text.strip_prefix("all:").and_then(|limit| limit.parse().ok());
        limit.filter(|limit| (1..=MAX_CATCH_UP).contains(limit)).map(Self::All).ok_or_else(|| {
            format!("`{text}` is not skip, once, all or all:LIMIT with a limit of 1 to {MAX_CATCH_UP}")
        })
    }
}

/// What happens at a time while the previous firing is still live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// It fires all the same.
    Allow,
    /// It does not fire.
    #[default]
    Skip,
    /// It fires when the previous firing has ended. Times that come meanwhile are merged into one,
    /// unless all missed times are wanted.
    Wait,
}

impl OverlapPolicy {
    /// Its name, as in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Wait => "wait",
        }
    }
}

impl fmt::Display for OverlapPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for OverlapPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Allow, Self::Skip, Self::Wait];
        let found = all.into_iter().find(|overlap| overlap.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not allow, skip or wait"))
    }
}

/// When a firing counts as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FiringScope {
    /// When the unit that was sent has ended.
    #[default]
    Unit,
    /// When that unit and the batch that it opens, named [`firing_batch_id`], have ended. The payload is
    /// an object; `batch` and `fired_for` are added to it.
    Batch,
}

/// The unit that a schedule sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnitTemplate {
    /// Its kind.
    pub kind: Kind,
    /// Its queue.
    pub queue: QueueName,
    /// Its priority.
    #[serde(default)]
    pub priority: Priority,
    /// Its deadline, counted from the firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// Its policy; `None` leaves it to its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Its weight.
    #[serde(default)]
    pub weight: Weight,
    /// Its cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<ConcurrencyCap>,
    /// When a firing counts as ended.
    #[serde(default)]
    pub starts: FiringScope,
    /// The payload. Stores keep it separately: see [`SchedulePlan::to_parts`].
    #[serde(skip_deserializing, default = "empty_payload")]
    pub payload: Payload,
}

fn empty_payload() -> Payload {
    Payload::from(Vec::new())
}

impl UnitTemplate {
    /// A unit of `kind` on the default queue.
    pub fn new(kind: Kind, payload: impl Into<Payload>) -> Self {
        Self {
            kind,
            queue: QueueName::default(),
            priority: Priority::default(),
            deadline: None,
            policy: None,
            weight: Weight::default(),
            cap: None,
            starts: FiringScope::Unit,
            payload: payload.into(),
        }
    }
}

/// The part of a schedule that its owner sets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchedulePlan {
    /// A cron expression, opaque to the store.
    pub cron: String,
    /// The time zone: an IANA name.
    pub zone: String,
    /// The policy for missed times.
    #[serde(default)]
    pub missed: MissedPolicy,
    /// The policy for overlapping firings.
    #[serde(default)]
    pub overlap: OverlapPolicy,
    /// The unit to send.
    pub template: UnitTemplate,
}

impl SchedulePlan {
    /// The plan as a store keeps it: JSON without the payload, and the payload.
    pub fn to_parts(&self) -> Result<(String, Payload), crate::Error> {
        let template = UnitTemplate { payload: empty_payload(), ..self.template.clone() };
        let text = serde_json::to_string(&Self { template, ..self.clone() });
        let text = text.map_err(|error| crate::Error::Invalid(error.to_string()))?;
        Ok((text, self.template.payload.clone()))
    }

    /// The inverse of [`Self::to_parts`].
    pub fn from_parts(text: &str, payload: Payload) -> serde_json::Result<Self> {
        let mut plan: Self = serde_json::from_str(text)?;
        plan.template.payload = payload;
        Ok(plan)
    }
}

/// A schedule as its owner describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    /// Its name, unique within its tenant.
    pub name: ScheduleName,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its plan.
    pub plan: SchedulePlan,
    /// Whether it starts paused.
    pub paused: bool,
    /// The first of its times after now. `None` if there is none.
    pub next_fire: Option<Timestamp>,
}

impl NewSchedule {
    /// Rejects a schedule if its units could never be sent.
    pub fn check(&self) -> Result<(), crate::Error> {
        let UnitTemplate { starts, payload, .. } = &self.plan.template;
        let object = || payload.parse::<serde_json::Map<String, serde_json::Value>>();
        if *starts == FiringScope::Batch && object().is_err() {
            let message = "the payload of a unit that opens a batch must be a JSON object";
            return Err(crate::Error::Invalid(message.into()));
        }
        check_text("cron expression", &self.plan.cron, MAX_PLAN_TEXT)?;
        check_text("time zone", &self.plan.zone, MAX_PLAN_TEXT)?;
        if self.plan.missed == MissedPolicy::All(0) {
            return Err(crate::Error::Invalid("to catch up 0 missed times, use `skip`".into()));
        }
        let (tenant, name, epoch) = (&self.tenant, &self.name, Timestamp::ZERO);
        self.plan.template.unit((tenant, name, epoch), epoch, epoch).check()
    }
}

/// A schedule as stored. Read without its template's payload, which is stored separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Schedule {
    /// Its name.
    pub name: ScheduleName,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its plan.
    #[serde(flatten)]
    pub plan: SchedulePlan,
    /// Whether it is paused.
    pub paused: bool,
    /// Incremented by every change of the owner: a firing by an older plan is rejected.
    pub revision: u64,
    /// When it was added.
    pub created_at: Timestamp,
    /// The time of its last firing.
    pub last_fire: Option<Timestamp>,
    /// The time of its next firing; may be shortly in the past. `None`: never again.
    pub next_fire: Option<Timestamp>,
    /// Number of firings.
    pub fired: u64,
    /// Times skipped because the previous firing was live.
    pub skipped: u64,
    /// Times skipped because they were missed.
    pub missed_times: u64,
}

/// Changes to a record; stores write the result.
impl Schedule {
    /// A schedule that was just put.
    pub fn new(new: NewSchedule, now: Timestamp) -> Self {
        Self {
            name: new.name,
            tenant: new.tenant,
            plan: new.plan,
            paused: new.paused,
            revision: 1,
            created_at: now,
            last_fire: None,
            next_fire: new.next_fire,
            fired: 0,
            skipped: 0,
            missed_times: 0,
        }
    }

    /// Replaces the plan; history and counters stay.
    pub fn replace(&mut self, new: NewSchedule) {
        self.plan = new.plan;
        self.paused = new.paused;
        self.next_fire = new.next_fire;
        self.revision += 1;
    }

    /// Pauses or resumes it; false if it already is paused or active.
    pub fn switch(&mut self, switch: ScheduleSwitch) -> bool {
        match switch {
            ScheduleSwitch::Pause if !self.paused => self.paused = true,
            ScheduleSwitch::Resume { next } if self.paused => {
                self.paused = false;
                self.next_fire = next;
            }
            _ => return false,
        }
        self.revision += 1;
        true
    }
}
