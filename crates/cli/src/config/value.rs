//! Deserializers of values that are text in the file.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use super::error;

/// Parses text as its type does.
pub(super) fn parsed<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Into<anyhow::Error>>,
    D: Deserializer<'de>,
{
    parse(&String::deserialize(deserializer)?)
}

/// Parses text as its type does; `""` is `None`.
pub(super) fn optional<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Into<anyhow::Error>>,
    D: Deserializer<'de>,
{
    match String::deserialize(deserializer)?.as_str() {
        "" => Ok(None),
        text => parse(text).map(Some),
    }
}

/// Parses each text of a list as its type does.
pub(super) fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err: Into<anyhow::Error>>,
    D: Deserializer<'de>,
{
    Vec::<String>::deserialize(deserializer)?.iter().map(|text| parse(text)).collect()
}

fn parse<T: FromStr<Err: Into<anyhow::Error>>, E: de::Error>(text: &str) -> Result<T, E> {
    text.parse().map_err(|problem: T::Err| E::custom(error::message(&problem.into())))
}

/// A folder; `""` is the working directory.
pub(super) fn folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    optional(deserializer).map(|path| path.unwrap_or_else(|| ".".into()))
}

/// A path that must not be empty.
#[cfg(feature = "standard")]
pub(super) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    optional(deserializer)?.ok_or_else(|| de::Error::custom("is empty"))
}

/// A count; 0 is taken as 1.
pub(super) fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    usize::deserialize(deserializer).map(|count| count.max(1))
}
