//! A client's metadata, which is returned unchanged.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A client's own object. Stored and echoed as it was written: numbers keep their digits and fields
/// their order.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Metadata(Option<Box<RawValue>>);

impl Metadata {
    /// From an object; `None` for any other value.
    pub fn new(value: &Value) -> Option<Self> {
        let raw = value.is_object().then(|| serde_json::value::to_raw_value(value));
        Some(Self(Some(raw?.ok()?)))
    }

    /// From parsed JSON; `None` if it is not an object.
    pub(super) fn parse(raw: &RawValue) -> Option<Self> {
        // It is valid JSON, so the first character shows its type.
        raw.get().starts_with('{').then(|| Self(Some(raw.to_owned())))
    }

    /// The JSON as it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or("{}", |raw| raw.get())
    }
}

/// The empty object.
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
    /// Its length only: the content is private to the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metadata({} bytes)", self.as_str().len())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(&raw).ok_or_else(|| serde::de::Error::custom("`metadata` must be an object"))
    }
}
