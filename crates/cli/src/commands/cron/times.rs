//! Parses a cron expression and a time zone, with hints for what is wrong.

use longshore::{CronError, CronSchedule};
use longshore_batch::file::zone_hint;

use crate::error::{hinted, usage};

/// The times of an expression in a zone.
pub fn parse_times(expression: &str, zone: &str) -> anyhow::Result<CronSchedule> {
    CronSchedule::new(expression, zone).map_err(|error| {
        let hint = hint(&error, expression);
        hinted(usage(format!("{}: {error}", subject(&error, expression))), hint)
    })
}

fn subject(error: &CronError, expression: &str) -> String {
    match error {
        CronError::Zone(_) => "--tz".to_owned(),
        _ => format!("--cron `{expression}`"),
    }
}

fn hint(error: &CronError, expression: &str) -> String {
    match error {
        CronError::Zone(given) => zone_hint(given),
        CronError::Fields { found } if *found < 5 => {
            "write `*` for a field that does not matter, as '0 2 * * *' for 02:00 every day \
             (and quote the expression, or the shell expands the asterisks)"
                .to_owned()
        }
        CronError::Fields { .. } => {
            "an optional sixth field in front is the second, a seventh at the end the year; \
             if the shell has expanded the asterisks, quote the expression"
                .to_owned()
        }
        CronError::Field { .. } if expression.split_whitespace().count() == 6 => {
            "with six fields the first is the second: second minute hour day month weekday; \
             leave it out for whole minutes"
                .to_owned()
        }
        _ => "fields are: minute (0-59) hour (0-23) day (1-31) month (1-12 or jan-dec) \
              weekday (0-7 or sun-sat); each may be *, a list 1,2, a range 1-5, a step */15"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_field_is_named_with_its_place() {
        for (expression, words) in [
            ("0 25 * * *", "hour `25` (at character 3)"),
            ("0 2 * * nov", "weekday `nov` (at character 9)"),
            ("61 0 2 * * *", "second `61` (at character 1)"),
            ("0 2 * *", "has 4"),
            ("@noon", "@daily"),
            ("", "has 0"),
            ("ü 2 * * *", "minute `ü` (at character 1)"),
        ] {
            let error = parse_times(expression, "UTC").unwrap_err().to_string();
            assert!(error.contains(words), "{expression}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(expression in r"(\PC{0,5} ?){0,8}|[0-9*/,#LW -]{0,30}") {
            let _ = parse_times(&expression, "UTC");
        }
    }
}
