//! Formats numbers and times for people.

pub(super) use longshore::duration::{format as duration, format_ago as ago};
use longshore::text::group_digits;

/// A number with thousands separators.
pub(super) fn number(count: u64) -> String {
    group_digits(count, ',')
}

/// A rate.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        0.0..10.0 => format!("{per_second:.2}/s"),
        _ => format!("{per_second:.0}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_rates_are_short_and_plain() {
        let written: Vec<String> = [0, 7, 999, 1_000, 1_234_567].map(number).into();
        assert_eq!(written, ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!((rate(0.5), rate(1234.4)), ("0.50/s".to_owned(), "1234/s".to_owned()));
    }
}
