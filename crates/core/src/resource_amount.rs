//! Amounts of named resources, in hundredths: several units may share one GPU.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A unit's weight has whole numbers. The name of a fractional amount has this suffix, and its number
/// counts hundredths.
const HUNDREDTHS: &str = "/100";

/// An amount of a named resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceAmount(u64);

impl ResourceAmount {
    /// Hundredths of a whole.
    pub const WHOLE: u64 = 100;

    /// A whole number.
    pub fn whole(number: u32) -> Self {
        Self(u64::from(number) * Self::WHOLE)
    }

    /// An amount in hundredths.
    pub fn from_hundredths(hundredths: u64) -> Self {
        Self(hundredths)
    }

    /// The amount in hundredths.
    pub fn hundredths(self) -> u64 {
        self.0
    }

    /// The number, if it is whole.
    pub fn as_whole(self) -> Option<u32> {
        self.0.is_multiple_of(Self::WHOLE).then(|| u32::try_from(self.0 / Self::WHOLE).unwrap_or(u32::MAX))
    }

    /// Its entry in a unit's weight.
    pub fn to_weight(self, name: &str) -> (String, u32) {
        match self.as_whole() {
            Some(number) => (name.to_owned(), number),
            None => (format!("{name}{HUNDREDTHS}"), u32::try_from(self.0).unwrap_or(u32::MAX)),
        }
    }

    /// The amounts in a unit's weight.
    pub fn of_weight(resources: &BTreeMap<String, u32>) -> BTreeMap<String, Self> {
        let mut amounts: BTreeMap<String, Self> = BTreeMap::new();
        for (name, number) in resources {
            let (name, amount) = match name.strip_suffix(HUNDREDTHS) {
                Some(name) => (name, Self(u64::from(*number))),
                None => (name.as_str(), Self::whole(*number)),
            };
            amounts.entry(name.to_owned()).or_default().0 += amount.0;
        }
        amounts
    }

    /// The entries of a claim for units that need at most `number` of this resource.
    pub fn claimed(name: &str, number: u32) -> [(String, u32); 2] {
        let hundredths = u32::try_from(Self::whole(number).0).unwrap_or(u32::MAX);
        [(name.to_owned(), number), (format!("{name}{HUNDREDTHS}"), hundredths)]
    }
}

impl fmt::Display for ResourceAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / Self::WHOLE, self.0 % Self::WHOLE);
        match part {
            0 => write!(f, "{whole}"),
            part if part % 10 == 0 => write!(f, "{whole}.{}", part / 10),
            part => write!(f, "{whole}.{part:02}"),
        }
    }
}

impl FromStr for ResourceAmount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = "the amount is a number above 0 with at most two decimals";
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 2 {
            return Err(bad);
        }
        let whole = whole.parse::<u32>().map_err(|_| bad)?;
        let part = format!("{part:0<2}").parse::<u64>().map_err(|_| bad)?;
        let amount = u64::from(whole) * Self::WHOLE + part;
        if amount > 0 { Ok(Self(amount)) } else { Err(bad) }
    }
}

/// A number for people, such as 2 or 0.5, and hundredths in postcard.
impl Serialize for ResourceAmount {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.as_whole() {
            _ if !to.is_human_readable() => to.serialize_u64(self.0),
            Some(number) => to.serialize_u32(number),
            #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
            None => to.serialize_f64(self.0 as f64 / Self::WHOLE as f64),
        }
    }
}

impl<'de> Deserialize<'de> for ResourceAmount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return u64::deserialize(from).map(Self);
        }
        let number = f64::deserialize(from)?;
        let text = format!("{number:.2}");
        let amount = text.trim_end_matches('0').trim_end_matches('.');
        if amount == "0" { Ok(Self(0)) } else { amount.parse().map_err(serde::de::Error::custom) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_as_it_is_written() {
        for text in ["1", "0.5", "0.25", "1.75", "64000", "0.05"] {
            let amount: ResourceAmount = text.parse().unwrap();
            assert_eq!(amount.to_string(), text);
            let json = serde_json::to_string(&amount).unwrap();
            assert_eq!((json.as_str(), serde_json::from_str(&json).unwrap()), (text, amount));
            let (name, number) = amount.to_weight("gpu");
            assert_eq!(
                ResourceAmount::of_weight(&[(name, number)].into()),
                [("gpu".to_owned(), amount)].into()
            );
        }
        for text in ["", "0", "0.00", "-1", "1.", ".5", "0.125", "1e3", "5000000000"] {
            assert!(text.parse::<ResourceAmount>().is_err(), "{text}");
        }
    }
}
