//! Parses and formats amounts of money and tokens: `50`, `$0.000012`, `2M`, `80%`.
//!
//! Money is never rounded here: it is printed with all its decimals.

use std::str::FromStr;

/// A dollar amount as typed, in picodollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dollars(pub i64);

impl FromStr for Dollars {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<longshore_ai::Cost>().map(|cost| Self(cost.0)).map_err(|error| error.to_string())
    }
}

/// A plain number of dollars, exact, with at least two decimals.
pub fn format_plain(picos: i64) -> String {
    longshore_ai::Cost(picos).plain()
}

/// A dollar amount with its `$`, for people.
pub fn format_usd(picos: i64) -> String {
    match format_plain(picos).strip_prefix('-') {
        Some(amount) => format!("-${amount}"),
        None => format!("${}", format_plain(picos)),
    }
}

/// An amount of tokens as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCount(pub u64);

/// Suffixes of a number of tokens.
const TOKEN_SUFFIXES: [(&str, u64); 4] = [("", 1), ("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000)];

/// The largest count that a store can hold.
const MAX_TOKENS: u64 = i64::MAX as u64;

impl FromStr for TokenCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an amount of tokens, as 500000, 200k or 1.5M");
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim().to_ascii_lowercase();
        let (_, scale) = TOKEN_SUFFIXES.into_iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let mut tokens = whole.checked_mul(scale).ok_or_else(bad)?;
        // Each digit behind the point is worth a tenth of the one before it, and must be a whole
        // number.
        let mut worth = scale;
        for digit in part.chars() {
            worth = Some(worth / 10).filter(|tenth| tenth * 10 == worth).ok_or_else(bad)?;
            tokens += u64::from(digit.to_digit(10).ok_or_else(bad)?) * worth;
        }
        Some(tokens).filter(|tokens| *tokens <= MAX_TOKENS).map(Self).ok_or_else(bad)
    }
}

/// A fraction as typed: `80%`, or `0.8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fraction(pub f64);

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a fraction, as 80% or 0.8");
        let part = match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map_err(|_| bad())? / 100.0,
            None => text.parse().map_err(|_| bad())?,
        };
        if (0.0..=1.0).contains(&part) { Ok(Self(part)) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_and_shown_exactly() {
        for (text, picos, again) in [
            ("50", 50_000_000_000_000, "50.00"),
            ("$0.25", 250_000_000_000, "0.25"),
            ("0.000000000007", 7, "0.000000000007"),
            ("12.3400", 12_340_000_000_000, "12.34"),
            ("0", 0, "0.00"),
        ] {
            assert_eq!(text.parse(), Ok(Dollars(picos)), "{text}");
            assert_eq!(format_plain(picos), again);
        }
        assert_eq!(
            (format_usd(-1_500_000_000).as_str(), format_usd(7_000).as_str()),
            ("-$0.0015", "$0.000000007")
        );
        for bad in ["", "-1", "1.", ".5", "1,5", "ten", "0.0000000000001", "99999999"] {
            assert!(bad.parse::<Dollars>().unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn tokens_are_read_as_people_write_them() {
        for (text, tokens) in
            [("0", 0), ("500000", 500_000), ("200k", 200_000), ("1.5M", 1_500_000), ("2 g", 2_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(TokenCount(tokens)), "{text}");
        }
        for bad in ["", "M", "1.5", "1.2345k", "-1", "2x", "1..2M", "99999999999999999999"] {
            assert!(bad.parse::<TokenCount>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_part_is_at_most_the_whole() {
        assert_eq!("80%".parse(), Ok(Fraction(0.8)));
        assert_eq!("0.5".parse(), Ok(Fraction(0.5)));
        for bad in ["80", "101%", "-1%", "nan", ""] {
            assert!(bad.parse::<Fraction>().is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_money_is_read_again_as_it_is_shown(picos in 0..=i64::MAX) {
            proptest::prop_assert_eq!(format_plain(picos).parse(), Ok(Dollars(picos)));
        }

        #[test]
        fn any_text_is_read_or_named_in_the_error(text in r"[0-9.]{0,8} ?[kMg%$]?|\PC*") {
            if let Err(error) = text.parse::<Dollars>() {
                proptest::prop_assert!(error.contains(&text));
            }
            if let Err(error) = text.parse::<TokenCount>() {
                proptest::prop_assert!(error.contains(&text));
            }
        }
    }
}
