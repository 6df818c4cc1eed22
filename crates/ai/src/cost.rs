//! What answers cost: tokens, prices, money.
//!
//! Money is counted in whole billionths of a dollar, so that the sum over a million rows is the
//! same in whatever order they are added.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use crate::ask::Answer;

/// Billionths in a dollar.
const DOLLAR: u64 = 1_000_000_000;

/// Dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Prices {
    /// Of questions.
    pub input: f64,
    /// Of answers.
    pub output: f64,
}

impl Prices {
    /// What an answer cost.
    pub fn cost(&self, answer: &Answer) -> Cost {
        self.for_tokens(answer.tokens_in, answer.tokens_out)
    }

    /// What so many tokens cost. Rounded once, not per direction.
    pub fn for_tokens(&self, tokens_in: u64, tokens_out: u64) -> Cost {
        // A dollar per million tokens is a thousand billionths per token.
        let thousands = tokens_in as f64 * self.input + tokens_out as f64 * self.output;
        Cost((thousands * 1000.0).round() as i64)
    }

    /// Whether both are prices at all: numbers, and not below zero.
    pub(crate) fn are_sound(&self) -> bool {
        [self.input, self.output].iter().all(|price| price.is_finite() && *price >= 0.0)
    }
}

/// Money, in billionths of a dollar: sums stay exact.
///
/// Shown with four decimals, and with as many more as a small sum needs for two digits.
///
/// ```
/// use longshore_ai::Cost;
///
/// assert_eq!(Cost(12_300_000).to_string(), "$0.0123");
/// assert_eq!(Cost(42_000).to_string(), "$0.000042");
/// ```
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cost(pub i64);

impl Cost {
    /// In dollars, for output that wants a number. Sums belong into `Cost`.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / DOLLAR as f64
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let decimals = decimals(nanos);
        let unit = 10_u64.pow(9 - decimals);
        let shown = (nanos + unit / 2) / unit * unit;
        let fraction = shown % DOLLAR / unit;
        let width = decimals as usize;
        f.pad(&format!("{sign}${}.{fraction:0width$}", shown / DOLLAR))
    }
}

/// How many decimals show two digits of a sum: four to nine.
fn decimals(nanos: u64) -> u32 {
    match nanos {
        0 | DOLLAR.. => 4,
        // Of nine decimals, as many are zeros as the number has digits too few.
        _ => (8 - nanos.ilog10() + 2).clamp(4, 9),
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

/// About how many tokens a text has: one per four characters, at least one. Good enough to say
/// what a batch may cost; a real provider's count is in its answers.
pub fn estimate_tokens(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_shown_with_four_decimals_and_more_when_it_is_little() {
        for (nanos, shown) in [
            (0, "$0.0000"),
            (12_300_000, "$0.0123"),
            (12_345_678, "$0.0123"),
            (123_450, "$0.00012"),
            (42_000, "$0.000042"),
            (99_600, "$0.000100"),
            (7, "$0.000000007"),
            (999_999_999, "$1.0000"),
            (12_340_050_000, "$12.3401"),
            (-1_500_000, "-$0.0015"),
            (i64::MAX, "$9223372036.8548"),
            (i64::MIN, "-$9223372036.8548"),
        ] {
            assert_eq!(Cost(nanos).to_string(), shown, "{nanos}");
        }
        assert_eq!(format!("{:>10}", Cost(10_000_000)), "   $0.0100");
    }

    #[test]
    fn a_price_is_per_million_tokens_and_rounded_once() {
        let prices = Prices { input: 3.0, output: 15.0 };
        assert_eq!(prices.for_tokens(1_000_000, 0), Cost(3_000_000_000));
        assert_eq!(prices.for_tokens(10, 20), Cost(30_000 + 300_000));
        // Each direction alone would round to 0.
        let tiny = Prices { input: 0.0004, output: 0.0004 };
        assert_eq!(tiny.for_tokens(1, 1), Cost(1));
    }

    #[test]
    fn prices_that_are_none_are_noticed_and_never_panic() {
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            let prices = Prices { input: bad, output: 0.0 };
            assert!(!prices.are_sound(), "{bad}");
            let _ = prices.for_tokens(u64::MAX, u64::MAX);
        }
        assert!(Prices::default().are_sound());
    }

    #[test]
    fn sums_are_exact_and_stop_at_the_end_of_the_scale() {
        let sum: Cost = std::iter::repeat_n(Cost(1), 1_000_000).sum();
        assert_eq!(sum, Cost(1_000_000));
        assert_eq!(Cost(i64::MAX) + Cost(1), Cost(i64::MAX));
        assert!((Cost(1_500_000_000).dollars() - 1.5).abs() < f64::EPSILON);
    }

    #[test]
    fn tokens_are_estimated_by_characters_not_bytes() {
        assert_eq!(estimate_tokens(""), 1);
        assert_eq!(estimate_tokens("abcd"), 1);
        assert_eq!(estimate_tokens("abcde"), 2);
        assert_eq!(estimate_tokens("🦀🦀🦀🦀"), 1);
    }
}
