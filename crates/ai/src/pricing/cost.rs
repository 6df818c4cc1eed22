//! Amounts of money, and the token estimate. Prices of tokens are in [`crate::Prices`].
//!
//! Money is counted in whole picos (1e-12 dollars): a cached token of a small model costs ten
//! thousand of them, and the sum over a million rows does not depend on the order.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// Picos in a dollar, and its number of decimals.
const DOLLAR: u64 = 1_000_000_000_000;
const DECIMALS: u32 = 12;

/// Money in picos (1e-12 dollars): sums are exact, up to nine million dollars, and saturate there.
///
/// Shown with four decimals, and with as many more as a small sum needs for two digits.
///
/// ```
/// use longshore_ai::Cost;
///
/// assert_eq!(Cost(12_300_000_000).to_string(), "$0.0123");
/// assert_eq!(Cost(42_000_000).to_string(), "$0.000042");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub i64);

impl Cost {
    /// In dollars, for output that needs a number. Sum up `Cost`, not this.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / DOLLAR as f64
    }

    /// A plain number of dollars, exact, with at least two decimals.
    ///
    /// ```
    /// assert_eq!(longshore_ai::Cost(12_345_000_000).plain(), "0.012345");
    /// ```
    pub fn plain(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        let picos = self.0.unsigned_abs();
        let part = format!("{:012}", picos % DOLLAR);
        let part = part.trim_end_matches('0');
        format!("{sign}{}.{part:0<2}", picos / DOLLAR)
    }

    /// A multiple.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self::clamped(i128::from(self.0) * i128::from(count))
    }

    /// Saturates at the range of `i64`.
    pub(crate) fn clamped(picos: i128) -> Self {
        let most = if picos < 0 { i64::MIN } else { i64::MAX };
        Self(i64::try_from(picos).unwrap_or(most))
    }
}

/// The text is not an amount of dollars.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of dollars, as 50 or 0.25")]
pub struct ParseCostError(String);

/// `$25`, `25` or `0.000012`; exact.
impl std::str::FromStr for Cost {
    type Err = ParseCostError;

    fn from_str(text: &str) -> Result<Self, ParseCostError> {
        const DECIMALS: usize = 12;
        let bad = || ParseCostError(text.to_owned());
        let number = text.strip_prefix('$').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > DECIMALS {
            return Err(bad());
        }
        format!("{whole}{part:0<DECIMALS$}").parse().map(Self).map_err(|_| bad())
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let picos = self.0.unsigned_abs();
        let decimals = decimals(picos);
        let unit = 10_u64.pow(DECIMALS - decimals);
        let shown = (picos + unit / 2) / unit * unit;
        let fraction = shown % DOLLAR / unit;
        let width = decimals as usize;
        f.pad(&format!("{sign}${}.{fraction:0width$}", shown / DOLLAR))
    }
}

/// Decimals that show two digits of a sum: four to twelve.
fn decimals(picos: u64) -> u32 {
    match picos {
        0 | DOLLAR.. => 4,
        // Of twelve decimals, the leading ones are zeros.
        _ => (DECIMALS - 1 - picos.ilog10() + 2).clamp(4, DECIMALS),
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// Quarters of a token that a character is estimated at. Alphabets have about four characters to a
/// token; a Chinese, Japanese or Korean character is about one token, and an emoji two.
fn quarter_tokens(char: char) -> u64 {
    match char {
        // Radicals, kana, ideographs and Hangul, of the basic plane and of the supplementary ones,
        // and full-width forms.
        '\u{1100}'..='\u{11ff}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff00}'..='\u{ffef}' => 4,
        // Ideographs outside of the basic plane, emoji and other rare characters.
        '\u{10000}'.. => 8,
        _ => 1,
    }
}

/// Estimates the tokens of a text, by its characters; at least one. Good enough to estimate the cost
/// of a batch; a real provider's count is in its answers.
///
/// ```
/// use longshore_ai::estimate_tokens;
///
/// assert_eq!(estimate_tokens("Hello, world"), 3);
/// assert_eq!(estimate_tokens("你好世界"), 4);
/// ```
pub fn estimate_tokens(text: &str) -> u64 {
    text.chars().map(quarter_tokens).sum::<u64>().div_ceil(4).max(1)
}

/// Where a text exceeds an estimate of `max` tokens, in bytes; `None` if it does not.
pub(crate) fn end_of_tokens(text: &str, max: u64) -> Option<usize> {
    let mut left = max.saturating_mul(4);
    let exceeds = text.char_indices().find(|(_, char)| match left.checked_sub(quarter_tokens(*char)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    exceeds.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_shown_with_four_decimals_and_more_when_it_is_little() {
        for (picos, shown) in [
            (0, "$0.0000"),
            (12_300_000_000, "$0.0123"),
            (12_345_678_901, "$0.0123"),
            (123_450_000, "$0.00012"),
            (42_000_000, "$0.000042"),
            (99_600_000, "$0.000100"),
            (7_000, "$0.0000000070"),
            (10_000, "$0.000000010"),
            (7, "$0.000000000007"),
            (999_999_999_999, "$1.0000"),
            (12_340_050_000_000, "$12.3401"),
            (-1_500_000_000, "-$0.0015"),
            (i64::MAX, "$9223372.0369"),
            (i64::MIN, "-$9223372.0369"),
        ] {
            assert_eq!(Cost(picos).to_string(), shown, "{picos}");
        }
        assert_eq!(format!("{:>10}", Cost(10_000_000_000)), "   $0.0100");
    }

    #[test]
    fn sums_are_exact_and_stop_at_the_end_of_the_scale() {
        let sum: Cost = std::iter::repeat_n(Cost(1), 1_000_000).sum();
        assert_eq!(sum, Cost(1_000_000));
        assert_eq!(Cost(i64::MAX) + Cost(1), Cost(i64::MAX));
        assert_eq!((Cost(3).times(4), Cost(3).times(u64::MAX)), (Cost(12), Cost(i64::MAX)));
        assert!((Cost(1_500_000_000_000).dollars() - 1.5).abs() < f64::EPSILON);
    }

    #[test]
    fn tokens_are_estimated_by_characters_not_bytes() {
        assert_eq!(estimate_tokens(""), 1);
        assert_eq!(estimate_tokens("abcd"), 1);
        assert_eq!(estimate_tokens("abcde"), 2);
        assert_eq!(estimate_tokens("éééé"), 1);
    }

    #[test]
    fn a_character_of_chinese_japanese_or_korean_is_a_token_or_more() {
        for text in ["漢字かな交じり文", "한국어문장", "カタカナ", "全角ＡＢ", "𠜎𠜱", "🦀🦀"]
        {
            let characters = text.chars().count() as u64;
            assert!(estimate_tokens(text) >= characters, "{text}: {}", estimate_tokens(text));
            assert!(estimate_tokens(text) <= text.len() as u64, "{text}");
        }
        assert_eq!(estimate_tokens("abcd漢字"), 3, "mixed texts are summed");
    }
}
