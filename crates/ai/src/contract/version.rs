//! Versions of the contract: an addition raises the minor number, a breaking change the major one.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ContractError;

/// A version, as `1.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The first version, and the default.
    pub const V1: Self = Self { major: 1, minor: 0 };

    /// Parses a version.
    pub fn parse(text: &str) -> Result<Self, ContractError> {
        let parts = text.split_once('.');
        parts
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| ContractError("`version` must be two numbers, as \"1.0\"".into()))
    }

    /// Whether it is supported: any 1.x, since additions may be ignored.
    pub fn is_supported(self) -> bool {
        self.major == Self::V1.major
    }

    /// The version of the reply: the request's, if supported.
    pub fn reply_version(self) -> Self {
        if self.is_supported() { self } else { Self::V1 }
    }
}

/// Parses a number without sign or leading zeros.
fn number(text: &str) -> Option<u32> {
    let valid = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    let valid = valid && (text == "0" || !text.starts_with('0'));
    if valid { text.parse().ok() } else { None }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl TryFrom<String> for Version {
    type Error = ContractError;

    fn try_from(text: String) -> Result<Self, ContractError> {
        Self::parse(&text)
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}
