//! Formats durations for base systems. All round up, so that a job never gets less than requested.

use std::time::Duration;

/// Seconds.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// `D-HH:MM:SS`.
pub(super) fn days(time: Duration) -> String {
    let seconds = seconds(time);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// `HH:MM:SS`; the hours may exceed 24.
pub(super) fn hours(time: Duration) -> String {
    let seconds = seconds(time);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// `H:MM`, the only format of LSF.
pub(super) fn minutes(time: Duration) -> String {
    let minutes = seconds(time).div_ceil(60);
    format!("{}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_each_system_reads_it() {
        let time = Duration::from_secs(2 * 86_400 + 3 * 3600 + 4 * 60 + 5);
        assert_eq!(days(time), "2-03:04:05");
        assert_eq!(hours(time), "51:04:05");
        assert_eq!(minutes(time), "51:05");
        assert_eq!(seconds(time), 183_845);
    }

    #[test]
    fn a_short_time_is_never_none() {
        let time = Duration::from_millis(1);
        assert_eq!((days(time), hours(time)), ("0-00:00:01".to_owned(), "00:00:01".to_owned()));
        assert_eq!((minutes(time), seconds(time)), ("0:01".to_owned(), 1));
    }
}
