//! Amounts of money and tokens as people write and read them: `50`, `$0.000012`, `2M`, `80%`.
//!
//! Money is never rounded here: it is shown with as many decimals as it has.

use std::str::FromStr;

/// Millionths of a millionth of a dollar in a dollar, and how many decimals that makes.
const DOLLAR: u64 = 1_000_000_000_000;
const DECIMALS: usize = 12;

/// Dollars as typed, in millionths of a millionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dollars(pub i64);

impl FromStr for Dollars {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an amount of dollars, as 50 or 0.25");
        let number = text.strip_prefix('$').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > DECIMALS {
            return Err(bad());
        }
        let picos = format!("{whole}{part:0<DECIMALS$}").parse();
        picos.map(Self).map_err(|_| bad())
    }
}

/// Money as a plain number of dollars, exact, with at least two decimals.
pub fn exact(picos: i64) -> String {
    let sign = if picos < 0 { "-" } else { "" };
    let (whole, part) = (picos.unsigned_abs() / DOLLAR, picos.unsigned_abs() % DOLLAR);
    let part = format!("{part:0DECIMALS$}");
    let part = part.trim_end_matches('0');
    format!("{sign}{whole}.{part:0<2}")
}

/// The same with its sign, for people.
pub fn shown(picos: i64) -> String {
    match exact(picos).strip_prefix('-') {
        Some(amount) => format!("-${amount}"),
        None => format!("${}", exact(picos)),
    }
}

/// An amount of tokens as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens(pub u64);

/// What may stand behind a number of tokens.
const SCALES: [(&str, u64); 4] = [("", 1), ("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000)];

/// As many as a store can count.
const MOST: u64 = i64::MAX as u64;

impl FromStr for Tokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an amount of tokens, as 500000, 200k or 1.5M");
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim().to_ascii_lowercase();
        let (_, scale) = SCALES.into_iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let mut tokens = whole.checked_mul(scale).ok_or_else(bad)?;
        // Each digit behind the point is worth a tenth of the one before it, and must be whole.
        let mut worth = scale;
        for digit in part.chars() {
            worth = Some(worth / 10).filter(|tenth| tenth * 10 == worth).ok_or_else(bad)?;
            tokens += u64::from(digit.to_digit(10).ok_or_else(bad)?) * worth;
        }
        Some(tokens).filter(|tokens| *tokens <= MOST).map(Self).ok_or_else(bad)
    }
}

/// A part of something as typed: `80%`, or `0.8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part(pub f64);

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a part, as 80% or 0.8");
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
            assert_eq!(exact(picos), again);
        }
        assert_eq!(
            (shown(-1_500_000_000).as_str(), shown(7_000).as_str()),
            ("-$0.0015", "$0.000000007")
        );
        for bad in ["", "-1", "1.", ".5", "1,5", "ten", "0.0000000000001", "99999999"] {
            assert!(bad.parse::<Dollars>().unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn tokens_are_read_as_people_write_them() {
        for (text, tokens) in [
            ("0", 0),
            ("500000", 500_000),
            ("200k", 200_000),
            ("1.5M", 1_500_000),
            ("2 g", 2_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Tokens(tokens)), "{text}");
        }
        for bad in ["", "M", "1.5", "1.2345k", "-1", "2x", "1..2M", "99999999999999999999"] {
            assert!(bad.parse::<Tokens>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_part_is_at_most_the_whole() {
        assert_eq!("80%".parse(), Ok(Part(0.8)));
        assert_eq!("0.5".parse(), Ok(Part(0.5)));
        for bad in ["80", "101%", "-1%", "nan", ""] {
            assert!(bad.parse::<Part>().is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_money_is_read_again_as_it_is_shown(picos in 0..=i64::MAX) {
            proptest::prop_assert_eq!(exact(picos).parse(), Ok(Dollars(picos)));
        }

        #[test]
        fn any_text_is_read_or_named_in_the_error(text in r"[0-9.]{0,8} ?[kMg%$]?|\PC*") {
            if let Err(error) = text.parse::<Dollars>() {
                proptest::prop_assert!(error.contains(&text));
            }
            if let Err(error) = text.parse::<Tokens>() {
                proptest::prop_assert!(error.contains(&text));
            }
        }
    }
}
