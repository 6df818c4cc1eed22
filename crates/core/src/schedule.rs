//! Schedules: what is sent at which times, and what happens when a time was missed or comes too
//! early.
//!
//! This module names and decides; it knows neither cron expressions nor time zones. Whoever fires a
//! schedule passes a function that says which time follows another (the engine's `Timetable`), so
//! every policy can be reached from data. [`decide`] is the policy; [`Template::unit`] makes the
//! unit of one firing, with an id that follows from tenant, schedule and time: a firing that is
//! repeated after a lost answer is recognised.

mod firing;
mod policy;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::{Kind, QueueName, ScheduleName, TenantId};
use crate::rank::Priority;
use crate::retry::Policy;
use crate::store::ScheduleSwitch;
use crate::time::Timestamp;
use crate::unit::{Cap, Payload, Weight};

pub use firing::{batch_of, unit_of};
pub use policy::{Decision, GRACE, Previous, Step, decide};

/// The most missed times that are made up for, one by one.
pub const MAX_CATCH_UP: u32 = 1_000;

/// What becomes of times that passed while nothing could fire: no worker ran, or the store was
/// away. A time counts as missed once it is [`GRACE`] old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are left out.
    Skip,
    /// One firing makes up for all of them.
    #[default]
    Once,
    /// Each fires, oldest first; of more than this many the newest.
    All(u32),
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip => f.pad("skip"),
            Self::Once => f.pad("once"),
            Self::All(limit) => f.pad(&format!("all:{limit}")),
        }
    }
}

/// `skip`, `once`, `all` (at most a hundred) or `all:LIMIT`.
impl FromStr for Missed {
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
            format!(
                "`{text}` is not skip, once, all or all:LIMIT with a limit of 1 to {MAX_CATCH_UP}"
            )
        })
    }
}

/// What happens at a time while what the previous firing started is still live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It fires beside it.
    Allow,
    /// It does not fire.
    #[default]
    Skip,
    /// It fires when the previous has ended. Times that come meanwhile become one, unless all
    /// missed ones are wanted.
    Wait,
}

impl Overlap {
    /// Its name, as in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Wait => "wait",
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Allow, Self::Skip, Self::Wait];
        let found = all.into_iter().find(|overlap| overlap.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not allow, skip or wait"))
    }
}

/// What must have ended before a firing counts as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Starts {
    /// The unit that was sent.
    #[default]
    Unit,
    /// That unit, and the batch that it opens under the name of [`batch_of`]. Its payload is an
    /// object; `batch` and `fired_for` are added to it.
    Batch,
}

/// The unit that a schedule sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// Which handler runs it.
    pub kind: Kind,
    /// Where it waits.
    pub queue: QueueName,
    /// How early it goes.
    #[serde(default)]
    pub priority: Priority,
    /// How long after the firing it may run; it fails instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// How its runs are repeated; `None` leaves it to its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// What it takes up.
    #[serde(default)]
    pub weight: Weight,
    /// How many like it may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<Cap>,
    /// What must have ended before the firing counts as ended.
    #[serde(default)]
    pub starts: Starts,
    /// What the handler reads. Stores keep it apart: see [`Plan::split`].
    #[serde(skip_deserializing, default = "nothing")]
    pub payload: Payload,
}

fn nothing() -> Payload {
    Payload::from(Vec::new())
}

impl Template {
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
            starts: Starts::Unit,
            payload: payload.into(),
        }
    }
}

/// What its owner says about a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// At which times: a cron expression, which the store does not look into.
    pub cron: String,
    /// In which time zone: an IANA name.
    pub zone: String,
    /// What becomes of missed times.
    #[serde(default)]
    pub missed: Missed,
    /// What happens while the previous firing is live.
    #[serde(default)]
    pub overlap: Overlap,
    /// What is sent.
    pub template: Template,
}

impl Plan {
    /// The plan as a store keeps it: text without the payload, and the payload as it is.
    pub fn split(&self) -> Result<(String, Payload), crate::Error> {
        let template = Template { payload: nothing(), ..self.template.clone() };
        let text = serde_json::to_string(&Self { template, ..self.clone() });
        let text = text.map_err(|error| crate::Error::Invalid(error.to_string()))?;
        Ok((text, self.template.payload.clone()))
    }

    /// Puts together what [`Self::split`] took apart.
    pub fn join(text: &str, payload: Payload) -> serde_json::Result<Self> {
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
    /// Whose it is.
    pub tenant: TenantId,
    /// What it does.
    pub plan: Plan,
    /// Whether it begins paused.
    pub paused: bool,
    /// The first time it fires: the first of its times after now. `None` if there is none.
    pub next_fire: Option<Timestamp>,
}

impl NewSchedule {
    /// Refuses what could never be sent.
    pub fn check(&self) -> Result<(), crate::Error> {
        let Template { starts, payload, .. } = &self.plan.template;
        let object = || payload.parse::<serde_json::Map<String, serde_json::Value>>();
        if *starts == Starts::Batch && object().is_err() {
            let message = "the payload of what opens a batch must be a JSON object";
            return Err(crate::Error::Invalid(message.into()));
        }
        if self.plan.missed == Missed::All(0) {
            return Err(crate::Error::Invalid("to make up for 0 missed times, say skip".into()));
        }
        let (tenant, name, epoch) = (&self.tenant, &self.name, Timestamp::ZERO);
        self.plan.template.unit(tenant, name, epoch, epoch).check()
    }
}

/// A schedule as the store knows it. Read without its template's payload, which stands apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name.
    pub name: ScheduleName,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it does.
    #[serde(flatten)]
    pub plan: Plan,
    /// Whether it fires.
    pub paused: bool,
    /// Raised by every change of its owner's: a firing by an old plan is refused.
    pub revision: u64,
    /// When it was added.
    pub created_at: Timestamp,
    /// The time it last fired for.
    pub last_fire: Option<Timestamp>,
    /// The time it fires for next; may be past for a moment. `None`: never again.
    pub next_fire: Option<Timestamp>,
    /// How often it fired.
    pub fired: u64,
    /// Times left out because the previous firing was live.
    pub skipped: u64,
    /// Times left out because they were missed.
    pub missed_times: u64,
}

/// What stores do to a record; the writing is theirs.
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

    /// Takes over another plan; the past and the counters stay.
    pub fn replace(&mut self, new: NewSchedule) {
        self.plan = new.plan;
        self.paused = new.paused;
        self.next_fire = new.next_fire;
        self.revision += 1;
    }

    /// Pauses or resumes it; false if it was so already.
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
