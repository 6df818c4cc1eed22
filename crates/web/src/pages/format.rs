//! Formats numbers and times for people.

use std::time::Duration;

use longshore::Timestamp;
use longshore::text::group_digits;

/// A number with thousands separators.
pub(super) fn number(count: u64) -> String {
    group_digits(count, ',')
}

/// A duration by its two largest units.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.is_zero() => "0 s".to_owned(),
        0 => "<1 s".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The time since a moment.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} ago", duration(now.since(then)))
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
    fn numbers_and_times_are_short_and_plain() {
        let written: Vec<String> = [0, 7, 999, 1_000, 1_234_567].map(number).into();
        assert_eq!(written, ["0", "7", "999", "1,000", "1,234,567"]);
        let written: Vec<String> =
            [0, 59, 61, 3_600, 90_061].map(|s| duration(Duration::from_secs(s))).into();
        assert_eq!(written, ["0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
        assert_eq!(duration(Duration::from_millis(3)), "<1 s");
        assert_eq!((rate(0.5), rate(1234.4)), ("0.50/s".to_owned(), "1234/s".to_owned()));
    }
}
