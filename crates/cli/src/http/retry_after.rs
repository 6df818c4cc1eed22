//! Parses `Retry-After`: seconds, or a date.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use longshore::Timestamp;

/// The longest wait that a server may request: a longer one is an error of its clock.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long to wait from `now`. `None` leaves it to the retry policy, which spreads the units that
/// a server rejected together.
pub fn read(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = DateTimeParser::new().parse_timestamp(value).ok()?;
            Timestamp::from_micros(date.as_microsecond()).since(now)
        }
    };
    Some(wait.min(MAX_WAIT)).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_all_else_is_left_to_the_policy() {
        let now = Timestamp::parse("1994-11-06T08:49:00Z").unwrap();
        let seconds = |value: &str| read(value, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 5 "), Some(5));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(37));
        for none in ["0", "", "soon", "-5", "1.5", "Sun, 06 Nov 1994 08:48:00 GMT"] {
            assert_eq!(seconds(none), None, "{none}");
        }
    }

    #[test]
    fn nobody_is_sent_away_for_more_than_a_day() {
        let now = Timestamp::ZERO;
        let longest = Some(MAX_WAIT);
        assert_eq!(read("18446744073709551615", now), longest);
        assert_eq!(read("Thu, 31 Dec 2099 23:59:59 GMT", now), longest);
    }

    proptest::proptest! {
        #[test]
        fn any_value_is_read_or_ignored(value: String) {
            let wait = read(&value, Timestamp::ZERO);
            proptest::prop_assert!(wait.is_none_or(|wait| wait <= MAX_WAIT && !wait.is_zero()));
        }
    }
}
