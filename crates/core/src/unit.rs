//! A unit: one piece of work, as it is sent and as it is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::access::Rights;
use crate::name::{BatchId, Kind, MAX_NAME, QueueName, SessionId, TenantId, UnitId};
use crate::outcome::Failure;
use crate::priority::Priority;
use crate::retry::Policy;
use crate::time::Timestamp;

/// The state of a unit. The first four are live, the last three final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnitState {
    /// Waits for dependencies.
    Blocked,
    /// Waits for its time.
    Scheduled,
    /// Waits for a worker.
    Ready,
    /// Leased by a worker.
    Leased,
    /// Succeeded.
    Done,
    /// Failed.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl UnitState {
    /// Every state, in the order of a unit's life.
    pub const ALL: [Self; 7] = [
        Self::Blocked,
        Self::Scheduled,
        Self::Ready,
        Self::Leased,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether the unit has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// The state's name, as in JSON and SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for UnitState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for UnitState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a unit state"))
    }
}

/// The largest payload, checkpoint or result, in bytes. A unit is a message: larger data belongs in
/// a file or a table, with its address in the payload.
pub const MAX_PAYLOAD: usize = 16 * 1024 * 1024;

/// The most dependencies of one unit. A unit that waits for more can wait for a batch's callback, or
/// for units that each wait for a part.
pub const MAX_DEPENDENCIES: usize = 1_000;

/// The most dependencies of all units of one send or chunk, which is one transaction: other writers
/// wait for it. [`crate::store::Enqueue::send`] rejects more; a client divides its units.
pub const MAX_SEND_DEPENDENCIES: usize = 10_000;

/// Most bytes of a dedup key or cap key.
pub const MAX_KEY: usize = 512;

/// Most named resources of a unit. Their names have at most [`MAX_NAME`] bytes.
pub const MAX_RESOURCES: usize = 32;

/// Most bytes of a `traceparent`: the format has 55, and may grow.
pub const MAX_TRACE: usize = 256;

/// A unit's data: bytes that the store does not interpret, JSON by convention.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Arc<[u8]>);

inline_schema!(Payload, {});

impl Payload {
    /// Serialises a value.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::to_vec(value).map(Self::from)
    }

    /// Deserialises the bytes as JSON.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.0)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<serde_json::Value> for Payload {
    fn from(value: serde_json::Value) -> Self {
        Self::from(value.to_string().into_bytes())
    }
}

/// Shows the size only: payloads may hold data that must not be logged.
impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// JSON is serialised as it is; other text as a string; other bytes as `{"base16": "…"}`.
impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(value) = serde_json::from_slice::<&serde_json::value::RawValue>(&self.0) {
            return value.serialize(serializer);
        }
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let hex = self.0.iter().fold(String::new(), |hex, b| hex + &format!("{b:02x}"));
                BTreeMap::from([("base16", hex)]).serialize(serializer)
            }
        }
    }
}

/// JSON is kept as it was written, to the last digit.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Ok(Self::from(value.get().as_bytes()))
    }
}

/// How a repeated unit is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedup {
    /// Unique within the unit's tenant and queue.
    pub key: String,
    /// How long the key is reserved.
    #[serde(default)]
    pub window: DedupWindow,
    /// The answer to a second unit with the key.
    #[serde(default)]
    pub on_duplicate: OnDuplicate,
}

/// How long a dedup key is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DedupWindow {
    /// Until the unit has ended: the same row may be processed again tomorrow.
    #[default]
    WhileLive,
    /// Until the unit's record is pruned: the same request is processed once.
    WhileKept,
    /// As long as the unit is stored, but a later unit with a `Since` window may take the key if
    /// the first one ended before the time in that window. What the sender read after that time, it
    /// read after the first unit's end.
    Since(Timestamp),
}

impl DedupWindow {
    /// Whether a unit with this window that ended at `ended` (`None`: it is live) keeps its key
    /// against a new unit with the window `other`.
    pub fn keeps_key_against(self, ended: Option<Timestamp>, other: Self) -> bool {
        let Some(ended) = ended else { return true };
        match (self, other) {
            (Self::WhileLive, _) => false,
            (Self::WhileKept, _) => true,
            (Self::Since(_), Self::Since(back_to)) => ended >= back_to,
            (Self::Since(_), _) => false,
        }
    }
}

/// The answer to a second unit with a reserved key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnDuplicate {
    /// The id of the first unit.
    #[default]
    Existing,
    /// A rejection.
    #[serde(rename = "refused")]
    Rejected,
}

/// What a unit occupies while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Weight {
    /// Slots of its worker. At least 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub slots: u32,
    /// Named resources of its worker, as `gpu` → 2.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u32>,
}

impl Default for Weight {
    fn default() -> Self {
        Self { slots: 1, resources: BTreeMap::new() }
    }
}

/// At most `limit` units of a lane with the same `key` are leased at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConcurrencyCap {
    /// Units with the same key share the limit.
    #[cfg_attr(feature = "schema", schemars(length(max = 512)))]
    pub key: String,
    /// How many may be leased at once. At least 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub limit: u32,
}

/// Dependencies: units that must succeed before this one is ready.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dependencies {
    /// The dependencies.
    #[cfg_attr(feature = "schema", schemars(length(max = MAX_DEPENDENCIES)))]
    pub units: Vec<UnitId>,
    /// What happens when a dependency fails or is cancelled.
    #[serde(default)]
    pub on_failure: OnDependencyFailure,
}

/// What a blocked unit does when a dependency failed or was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnDependencyFailure {
    /// It is cancelled, and so are its dependants.
    #[default]
    Cancel,
    /// It treats the dependency as done, and runs once all have ended.
    Release,
}

/// A unit as its sender describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewUnit {
    /// Made by the sender; sending the same id again has no effect.
    pub id: UnitId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its queue.
    pub queue: QueueName,
    /// Its kind, which selects the handler.
    pub kind: Kind,
    /// Input for the handler.
    pub payload: Payload,
    /// Its priority.
    pub priority: Priority,
    /// Deduplication.
    pub dedup: Option<Dedup>,
    /// Not ready before this.
    pub not_before: Option<Timestamp>,
    /// No run starts or continues after this; the unit fails instead.
    pub deadline: Option<Timestamp>,
    /// What it occupies while it runs.
    pub weight: Weight,
    /// How many units with the same cap key may run at once.
    pub cap: Option<ConcurrencyCap>,
    /// Its dependencies.
    pub dependencies: Dependencies,
    /// Its policy; `None` leaves it to its kind.
    pub policy: Option<Policy>,
    /// W3C `traceparent` of the sender.
    pub trace: Option<String>,
    /// A client will wait for it: its end gets its own entry in the change feed.
    pub awaited: bool,
    /// The rights that it is sent with.
    pub rights: Rights,
}

impl NewUnit {
    /// A unit of `kind` on the default queue of the default tenant.
    pub fn new(kind: Kind, payload: impl Into<Payload>) -> Self {
        Self {
            id: UnitId::new(),
            tenant: TenantId::default(),
            queue: QueueName::default(),
            kind,
            payload: payload.into(),
            priority: Priority::default(),
            dedup: None,
            not_before: None,
            deadline: None,
            weight: Weight::default(),
            cap: None,
            dependencies: Dependencies::default(),
            policy: None,
            trace: None,
            awaited: false,
            rights: Rights::Operator,
        }
    }

    /// Rejects invalid units.
    pub fn check(&self) -> Result<(), crate::Error> {
        let invalid = |message: String| Err(crate::Error::Invalid(message));
        if !self.queue.admits(&self.tenant) {
            return invalid(format!("queue `{}` does not belong to tenant `{}`", self.queue, self.tenant));
        }
        check_size("payload", &self.payload)?;
        if self.weight.slots == 0 {
            return invalid("a unit must weigh at least one slot".into());
        }
        if self.cap.as_ref().is_some_and(|cap| cap.limit == 0) {
            return invalid("a cap must be at least 1: with 0 the unit would never run".into());
        }
        if self.policy.as_ref().is_some_and(|policy| policy.retry.max_attempts == 0) {
            return invalid("max_attempts must be at least 1: with 0 the unit would never run".into());
        }
        check_text("key", self.key(), MAX_KEY)?;
        check_text("cap's key", self.cap_key(), MAX_KEY)?;
        check_text("trace", self.trace.as_deref().unwrap_or_default(), MAX_TRACE)?;
        let resources = &self.weight.resources;
        if resources.len() > MAX_RESOURCES {
            let found = resources.len();
            return invalid(format!(
                "a unit may name at most {MAX_RESOURCES} resources, this one names {found}"
            ));
        }
        check_count("a unit", self.dependencies.units.len(), MAX_DEPENDENCIES)?;
        resources.keys().try_for_each(|name| check_text("name of a resource", name, MAX_NAME))?;
        if self.dependencies.units.contains(&self.id) {
            return invalid("a unit cannot depend on itself".into());
        }
        Ok(())
    }
}

/// Rejects more than `limit` dependencies.
pub(crate) fn check_count(what: &str, count: usize, limit: usize) -> Result<(), crate::Error> {
    if count <= limit {
        return Ok(());
    }
    Err(crate::Error::Invalid(format!("{what} may have at most {limit} dependencies, and this has {count}")))
}

impl NewUnit {
    /// The bytes that count towards a capacity: the payload, and every other part of a length that the
    /// sender chooses.
    pub fn stored_bytes(&self) -> u64 {
        let resources: usize = self.weight.resources.keys().map(String::len).sum();
        let texts = self.key().len() + self.cap_key().len() + self.trace.as_deref().map_or(0, str::len);
        let dependencies = self.dependencies.units.len() * size_of::<UnitId>();
        (self.payload.len() + texts + resources + dependencies) as u64
    }

    fn key(&self) -> &str {
        self.dedup.as_ref().map_or("", |dedup| &dedup.key)
    }

    fn cap_key(&self) -> &str {
        self.cap.as_ref().map_or("", |cap| &cap.key)
    }
}

/// Rejects data larger than [`MAX_PAYLOAD`].
pub fn check_size(what: &str, bytes: &Payload) -> Result<(), crate::Error> {
    check_len(what, bytes.len(), MAX_PAYLOAD)
}

/// Rejects a text of more than `limit` bytes.
pub fn check_text(what: &str, text: &str, limit: usize) -> Result<(), crate::Error> {
    check_len(what, text.len(), limit)
}

fn check_len(what: &str, bytes: usize, limit: usize) -> Result<(), crate::Error> {
    if bytes <= limit {
        return Ok(());
    }
    Err(crate::Error::TooLarge { what: what.to_owned(), bytes, limit })
}

/// The progress that a running unit reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Progress {
    /// Between 0 and 1, if known.
    pub fraction: Option<f64>,
    /// A short message, if any.
    pub message: Option<String>,
}

/// A unit as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unit {
    /// Its id.
    pub id: UnitId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its queue.
    pub queue: QueueName,
    /// Its kind, which selects the handler.
    pub kind: Kind,
    /// Its batch.
    pub batch: Option<BatchId>,
    /// Its state.
    pub state: UnitState,
    /// Its priority.
    pub priority: Priority,
    /// Attempts used so far.
    pub attempt: u32,
    /// Runs lost with their workers.
    pub lost: u32,
    /// 1, and one more each time an operator retried it: its attempts are counted anew then.
    #[serde(default = "first_generation")]
    pub generation: u32,
    /// The generation of its batch in which it runs or ended.
    #[serde(default = "first_generation")]
    pub batch_generation: u32,
    /// Incremented each time the unit changes hands.
    pub fence: u64,
    /// The session that holds it.
    pub session: Option<SessionId>,
    /// When it was sent.
    pub created_at: Timestamp,
    /// When it is due (scheduled), became ready, was leased, or ended.
    pub since: Timestamp,
    /// When the current run started.
    pub started_at: Option<Timestamp>,
    /// No run starts after this.
    pub deadline: Option<Timestamp>,
    /// Its dedup key.
    pub key: Option<String>,
    /// What it occupies while it runs.
    pub weight: Weight,
    /// How many units with the same cap key may run at once.
    pub cap: Option<ConcurrencyCap>,
    /// The sender's policy, if set.
    pub policy: Option<Policy>,
    /// W3C `traceparent` of the sender.
    pub trace: Option<String>,
    /// The rights that it was sent with.
    #[serde(default)]
    pub rights: Rights,
    /// The progress of the current run.
    pub progress: Option<Progress>,
    /// Why it failed, or why its last run failed.
    pub failure: Option<Failure>,
    /// Its cancellation was requested while it ran.
    pub cancel_requested: bool,
    /// Input for the handler.
    pub payload: Payload,
    /// The checkpoint of the last run. None if the unit is done: it does not run again.
    pub checkpoint: Option<Payload>,
    /// The handler's result.
    pub result: Option<Payload>,
}

fn first_generation() -> u32 {
    1
}

impl Unit {
    /// How long a run that starts at `now` may take, by timeout and deadline. Pass the store's time
    /// (`started_at`), so that the worker's clock does not matter.
    pub fn time_limit(&self, policy: &Policy, now: Timestamp) -> Option<Duration> {
        let left = self.deadline.map(|deadline| deadline.since(now));
        match (policy.timeout, left) {
            (Some(timeout), Some(left)) => Some(timeout.min(left)),
            (timeout, left) => timeout.or(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_shown_as_what_it_is() {
        let show = |bytes: &[u8]| serde_json::to_string(&Payload::from(bytes)).unwrap();
        assert_eq!(show(br#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(show(b"plain words"), r#""plain words""#);
        assert_eq!(show(&[0xff, 0x00]), r#"{"base16":"ff00"}"#);
    }

    #[test]
    fn a_payload_is_read_as_it_was_written() {
        let written = r#"{"n": 12345678901234567890123, "a":[1.10]}"#;
        let read: Payload = serde_json::from_str(written).unwrap();
        assert_eq!(read.as_bytes(), written.as_bytes());
        assert_eq!(serde_json::to_string(&read).unwrap(), written);
    }

    #[test]
    fn a_payload_never_shows_in_a_debug_print() {
        let payload = Payload::from(b"secret".as_slice());
        assert_eq!(format!("{payload:?}"), "Payload(6 bytes)");
    }

    #[test]
    fn an_oversized_payload_is_refused_with_both_sizes() {
        let unit = NewUnit::new(Kind::new("k").unwrap(), vec![0; MAX_PAYLOAD + 1]);
        let message = unit.check().unwrap_err().to_string();
        assert!(message.contains("16777217") && message.contains("16777216"), "{message}");
    }
}
