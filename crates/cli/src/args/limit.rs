//! Limits as typed: a number, or `none` for no limit. A limit that is not given stays as it is.

use std::str::FromStr;

use clap::Args;
use longshore::ByteSize;
use longshore::store::Capacity;

/// A limit; `None` removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitArg<T>(pub Option<T>);

impl<T: FromStr> FromStr for LimitArg<T>
where
    T::Err: std::fmt::Display,
{
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(limit) => Ok(Self(Some(limit))),
            Err(error) => Err(format!("{error} (`none` lifts the limit)")),
        }
    }
}

/// A whole number from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtLeastOne(pub u32);

impl FromStr for AtLeastOne {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| *number > 0);
        number.map(Self).ok_or_else(|| format!("`{text}` is not a whole number from 1"))
    }
}

/// How much may be live at once.
#[derive(Debug, Clone, Copy, Args)]
pub struct CapacityArgs {
    /// Maximum live units (blocked, scheduled, ready or leased), or none
    #[arg(long, value_name = "N|none")]
    pub max_units: Option<LimitArg<u64>>,
    /// Maximum bytes of their payloads, as 10MB, or none
    #[arg(long, value_name = "SIZE|none")]
    pub max_bytes: Option<LimitArg<ByteSize>>,
}

impl CapacityArgs {
    /// The capacity that results from `now` and the options; `None` if no option was given.
    pub fn apply_to(self, now: Capacity) -> Option<Capacity> {
        if self.max_units.is_none() && self.max_bytes.is_none() {
            return None;
        }
        let bytes = self.max_bytes.map(|limit| limit.0.map(|size| size.0));
        Some(Capacity {
            units: self.max_units.map_or(now.units, |limit| limit.0),
            bytes: bytes.unwrap_or(now.bytes),
        })
    }

    /// Whether no option was given.
    pub fn is_empty(self) -> bool {
        self.apply_to(Capacity::default()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_none() {
        assert_eq!("7".parse(), Ok(LimitArg(Some(7_u64))));
        assert_eq!("none".parse::<LimitArg<u64>>(), Ok(LimitArg(None)));
        assert_eq!("2kB".parse(), Ok(LimitArg(Some(ByteSize(2_000)))));
        for bad in ["", "all", "-1"] {
            assert!(bad.parse::<LimitArg<u64>>().unwrap_err().contains("`none`"), "{bad}");
        }
        assert!("0".parse::<AtLeastOne>().is_err());
    }

    #[test]
    fn what_is_not_said_about_a_bound_stays() {
        let now = Capacity { units: Some(5), bytes: Some(6) };
        let none = CapacityArgs { max_units: None, max_bytes: None };
        assert_eq!(none.apply_to(now), None);
        let units = CapacityArgs { max_units: Some(LimitArg(None)), ..none };
        assert_eq!(units.apply_to(now), Some(Capacity { units: None, bytes: Some(6) }));
        let bytes = CapacityArgs { max_bytes: Some(LimitArg(Some(ByteSize(9)))), ..none };
        assert_eq!(bytes.apply_to(now), Some(Capacity { units: Some(5), bytes: Some(9) }));
    }
}
