//! Versions of the contract: what is added raises the second number, what breaks the first.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Malformed;

/// A version, as `1.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The first, and what is spoken where nobody said otherwise.
    pub const V1: Self = Self { major: 1, minor: 0 };

    /// Reads a version.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let parts = text.split_once('.');
        parts
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| Malformed("`version` must be two numbers, as \"1.0\"".into()))
    }

    /// Whether we speak it: any 1.x, since what is added may be ignored.
    pub fn is_known(self) -> bool {
        self.major == Self::V1.major
    }

    /// The version to answer in: the caller's own, if we speak it.
    pub fn answered_in(self) -> Self {
        if self.is_known() { self } else { Self::V1 }
    }
}

/// A number as people write it: no sign, no zeros before it.
fn number(text: &str) -> Option<u32> {
    let plain = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = plain && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl TryFrom<String> for Version {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::parse(&text)
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}
