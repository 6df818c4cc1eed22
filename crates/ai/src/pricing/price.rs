//! The exact price of a token.
//!
//! Providers state prices in dollars per million tokens. A millionth of a dollar per million tokens
//! is a pico per token, so a price with at most six decimals is a whole number of picos.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Picos per token in a dollar per million tokens, and its number of decimals.
const DOLLAR: u64 = 1_000_000;
const DECIMALS: usize = 6;

/// The highest price of a token: a dollar. A higher one is a typing mistake.
const MAX_PICOS_PER_TOKEN: u64 = DOLLAR * 1_000_000;

/// The price of a token. Parsed and written as dollars per million tokens.
///
/// ```
/// use longshore_ai::Price;
///
/// let price: Price = "0.8".parse().unwrap();
/// assert_eq!(price.picos_per_token(), 800_000);
/// assert_eq!(price.to_string(), "0.8");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Price(u64);

/// Why a text or number is not a price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// Not a number, or negative.
    #[error("`{0}` is no price: dollars per million tokens are wanted, 0 or more")]
    NoNumber(String),
    /// Too many decimals.
    #[error("`{0}` has more than six decimals: dollars per million tokens are counted to six")]
    TooFine(String),
    /// Above a dollar per token.
    #[error("`{0}` is above 1000000 dollars per million tokens")]
    TooMuch(String),
    /// Not a fraction from 0 to 1.
    #[error("`{0}` is no part of a price: a number from 0 to 1 is wanted")]
    NoShare(String),
}

impl Price {
    /// Whole dollars per million tokens.
    pub const fn dollars(dollars: u32) -> Self {
        Self(dollars as u64 * DOLLAR)
    }

    /// In picos (1e-12 dollars).
    pub const fn picos_per_token(self) -> u64 {
        self.0
    }

    pub(crate) fn from_picos(picos: u32) -> Self {
        Self(u64::from(picos))
    }

    /// From a number in TOML or JSON: as precise as the number's shortest form.
    pub fn from_number(number: f64) -> Result<Self, PriceError> {
        // Formatted without an exponent, with the fewest digits that identify it.
        number.to_string().parse()
    }
}

impl FromStr for Price {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let text = text.trim();
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return Err(PriceError::NoNumber(text.to_owned()));
        }
        let part = part.trim_end_matches('0');
        if part.len() > DECIMALS {
            return Err(PriceError::TooFine(text.to_owned()));
        }
        let picos = format!("{whole}{part:0<DECIMALS$}").parse().ok();
        let picos = picos.filter(|picos| *picos <= MAX_PICOS_PER_TOKEN);
        picos.map(Self).ok_or_else(|| PriceError::TooMuch(text.to_owned()))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:0DECIMALS$}", self.0 / DOLLAR, self.0 % DOLLAR);
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Serialize for Price {
    /// As a number: up to `MAX_PICOS_PER_TOKEN` every price has a distinct `f64`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / DOLLAR as f64)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PriceVisitor)
    }
}

struct PriceVisitor;

impl Visitor<'_> for PriceVisitor {
    type Value = Price;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dollars per million tokens")
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Price, E> {
        Price::from_number(number).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Price, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Price, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Price, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_read_from_numbers_and_texts_alike() {
        for json in ["0.8", "\"0.8\"", "\"0.800000000\"", "8e-1"] {
            assert_eq!(serde_json::from_str::<Price>(json).unwrap(), Price(800_000), "{json}");
        }
        assert_eq!(serde_json::from_str::<Price>("3").unwrap(), Price::dollars(3));
        assert_eq!(serde_json::from_str::<Price>("0.000001").unwrap(), Price(1));
    }

    #[test]
    fn what_is_no_price_is_refused_and_says_why() {
        for (text, why) in [
            ("-1", "is no price"),
            ("NaN", "is no price"),
            ("inf", "is no price"),
            ("", "is no price"),
            ("3 $", "is no price"),
            ("1.", "is no price"),
            ("1,5", "is no price"),
            ("0.0000001", "more than six decimals"),
            ("1000000.000001", "above 1000000"),
            ("99999999999999999999999", "above 1000000"),
        ] {
            let error = text.parse::<Price>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Price::from_number(f64::NAN).is_err() && Price::from_number(f64::INFINITY).is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_price_survives_text_json_and_toml(picos in 0..=MAX_PICOS_PER_TOKEN) {
            let price = Price(picos);
            proptest::prop_assert_eq!(price.to_string().parse::<Price>(), Ok(price));
            let json = serde_json::to_string(&price).unwrap();
            proptest::prop_assert_eq!(serde_json::from_str::<Price>(&json).unwrap(), price);
            let toml = toml::Value::try_from(price).unwrap();
            proptest::prop_assert_eq!(toml.try_into::<Price>().unwrap(), price);
        }
    }
}
