//! Cron times in time zones, above all on days when clocks change.

use longshore::{CronSchedule, Timestamp, time_zones};

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// The next `count` times after `start`, in local time.
fn coming(expression: &str, zone: &str, start: &str, count: usize) -> Vec<String> {
    let times = CronSchedule::new(expression, zone).unwrap();
    let follow = |time: &Timestamp| times.next_after(*time);
    let all = std::iter::successors(times.next_after(at(start)), follow);
    all.take(count).map(|time| times.local(time)).collect()
}

#[test]
fn a_time_that_does_not_exist_fires_once_at_the_shift() {
    // Berlin, 29 March 2026: 02:00 becomes 03:00.
    let nights = coming("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3);
    let expected = ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"];
    assert_eq!(nights, expected);
    let several = coming("0,15,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
    let expected = ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"];
    assert_eq!(several, expected, "three times that do not exist are one moment");
}

#[test]
fn a_time_that_comes_twice_fires_the_first_time_only() {
    // Berlin, 25 October 2026: 03:00 becomes 02:00.
    let nights = coming("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(nights, ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]);
    let from_between = coming("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", 1);
    assert_eq!(from_between, ["2026-10-26T02:30:00+01:00"], "nor if one looks in between");
}

#[test]
fn times_beside_the_shift_fire_as_on_every_day() {
    let spring = coming("0 1 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
    assert_eq!(spring, ["2026-03-29T01:00:00+01:00", "2026-03-30T01:00:00+02:00"]);
    let both = coming("30 1,2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 3);
    let expected = ["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"];
    assert_eq!(both, expected);
    let at_the_shift = coming("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
    let expected = ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"];
    assert_eq!(at_the_shift, expected, "two times, one moment");
}

#[test]
fn every_quarter_of_an_hour_goes_by_the_time_that_passes() {
    let spring = coming("*/15 * * * *", "Europe/Berlin", "2026-03-29T00:40:00Z", 2);
    assert_eq!(spring, ["2026-03-29T01:45:00+01:00", "2026-03-29T03:00:00+02:00"]);
    let autumn = coming("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", 5);
    let expected = [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ];
    assert_eq!(autumn, expected);
}

#[test]
fn a_shift_of_half_an_hour_is_no_different() {
    // Lord Howe, 4 October 2026: 02:00 becomes 02:30.
    let times = coming("10 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 2);
    assert_eq!(times, ["2026-10-04T02:30:00+11:00", "2026-10-05T02:10:00+11:00"]);
}

#[test]
fn the_forms_of_expressions() {
    let start = "2026-01-01T00:00:00Z";
    for (expression, next) in [
        ("* * * * *", "2026-01-01T00:01:00+00:00"),
        ("* * * * * *", "2026-01-01T00:00:01+00:00"),
        ("0 0 12 * * * 2028", "2028-01-01T12:00:00+00:00"),
        ("@daily", "2026-01-02T00:00:00+00:00"),
        ("0 9 * * mon-fri", "2026-01-01T09:00:00+00:00"),
        ("0 0 L * *", "2026-01-31T00:00:00+00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00+00:00"),
        ("0 0 13 * fri", "2026-01-02T00:00:00+00:00"),
    ] {
        assert_eq!(coming(expression, "UTC", start, 1), [next], "{expression}");
    }
    assert!(coming("0 0 30 2 *", "UTC", start, 1).is_empty(), "no such day, ever");
    assert!(coming("0 0 0 1 1 * 2025", "UTC", start, 1).is_empty(), "that year has passed");
}

#[test]
fn special_days() {
    let start = "2026-01-01T00:00:00Z";
    for (expression, next) in [
        ("0 0 31W * *", "2026-01-30T00:00:00+00:00"),
        ("0 0 1W 8 *", "2026-08-03T00:00:00+00:00"),
        ("0 0 LW 5 *", "2026-05-29T00:00:00+00:00"),
        ("0 0 * * fri#2", "2026-01-09T00:00:00+00:00"),
        ("0 0 * * 5L", "2026-01-30T00:00:00+00:00"),
        ("0 0 * * sun#L", "2026-01-25T00:00:00+00:00"),
        ("0 0 * * fri-sun", "2026-01-02T00:00:00+00:00"),
        ("10/20 3 * * 7", "2026-01-04T03:10:00+00:00"),
    ] {
        assert_eq!(coming(expression, "UTC", start, 1), [next], "{expression}");
    }
    for wrong in
        ["5-1 * * * *", "*/0 * * * *", "* * 0 * *", "* * * * fri#6", "* * 40W * *", "+5 * * * *", ", * * * *"]
    {
        assert!(CronSchedule::new(wrong, "UTC").is_err(), "{wrong}");
    }
}

#[test]
fn the_last_times_of_a_year_may_be_in_the_repeated_hour() {
    // Berlin, 25 October 2026: 03:00 becomes 02:00.
    let last = coming("0 */30 2 25 10 * 2026", "Europe/Berlin", "2026-10-25T00:15:00Z", 9);
    let expected = ["2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"];
    assert_eq!(last, expected);
}

#[test]
fn an_expression_in_words() {
    for (expression, words) in [
        ("30 2 * * *", "At 02:30."),
        ("*/20 9-17 * * mon-fri", "Every 20 minutes, at hour 9 to 17, on Monday to Friday."),
        ("0 0 L * fri#2", "At 00:00, on the last day of the month or on the second Friday of the month."),
        ("0 9,12 * jan-mar *", "At 09:00 and 12:00, in January to March."),
        ("0-30/5 * * * *", "Every 5 minutes from 0 to 30."),
        ("@hourly", "At minute 0 past every hour."),
        ("* * * * * *", "Every second."),
        ("* * * * *", "Every minute."),
        ("0 0 12 * * * 2028", "At 12:00, in 2028."),
    ] {
        assert_eq!(CronSchedule::new(expression, "UTC").unwrap().describe(), words, "{expression}");
    }
}

#[test]
fn zones_are_known_whatever_the_machine_has() {
    let known = time_zones();
    for zone in ["Europe/Berlin", "America/New_York", "UTC"] {
        assert!(known.iter().any(|name| name == zone), "{zone}");
    }
    assert!(CronSchedule::new("* * * * *", "Mars/Phobos").is_err());
}

proptest::proptest! {
    /// In a year of Berlin's days, every minute of the day fires exactly once per day.
    #[test]
    fn a_fixed_time_fires_once_on_every_day(hour in 0_u32..24, minute in 0_u32..60) {
        let expression = format!("{minute} {hour} * * *");
        let days = coming(&expression, "Europe/Berlin", "2025-12-31T23:00:00Z", 366);
        let mut dates: Vec<&str> = days.iter().map(|day| &day[..10]).collect();
        // The start may be that very minute, and `after` excludes it.
        dates.retain(|date| date.starts_with("2026"));
        let all = dates.len();
        dates.dedup();
        proptest::prop_assert_eq!(dates.len(), all, "twice on a day");
        proptest::prop_assert!(all >= 364, "{} days", all);
    }

    #[test]
    fn times_only_go_forward(expression in r"[0-5]?[0-9] (\*|[01]?[0-9]|\*/[2-9]) (\*|[1-9]) (\*|[1-9]) (\*|[0-6])", start in 0_i64..4_000_000_000) {
        if let Ok(times) = CronSchedule::new(&expression, "America/New_York") {
            let mut time = Timestamp::from_micros(start * 1_000_000);
            for _ in 0..20 {
                let Some(next) = times.next_after(time) else { break };
                proptest::prop_assert!(next > time);
                time = next;
            }
        }
    }
}
