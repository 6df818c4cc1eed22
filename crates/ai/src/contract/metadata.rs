//! What a caller wants back as it was.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A caller's own object. Kept and echoed as it was written: numbers keep their digits and members
/// their order.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Metadata(Option<Box<RawValue>>);

impl Metadata {
    /// From an object; `None` if it is none.
    pub fn new(value: &Value) -> Option<Self> {
        let raw = value.is_object().then(|| serde_json::value::to_raw_value(value));
        Some(Self(Some(raw?.ok()?)))
    }

    /// From what was read; `None` if it is no object.
    pub(super) fn read(raw: &RawValue) -> Option<Self> {
        // What was read is JSON, so the first character says what it is.
        raw.get().starts_with('{').then(|| Self(Some(raw.to_owned())))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or("{}", |raw| raw.get())
    }
}

/// Nothing: `{}`.
impl Default for Metadata {
    fn default() -> Self {
        Self(RawValue::from_string("{}".to_owned()).ok())
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for Metadata {
    /// Its length: what is in it is the caller's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metadata({} bytes)", self.as_str().len())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(&raw).ok_or_else(|| serde::de::Error::custom("`metadata` must be an object"))
    }
}
