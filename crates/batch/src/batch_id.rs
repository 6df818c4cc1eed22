//! Batch ids: the start time and a number within that second, so that ids sort by time.

use longshore::name::NameError;
use longshore::{BatchId, Timestamp};

/// The id of batch number `sequence` (from 1) of this second in UTC, such as `20261115-071502-001`.
pub fn batch_id(now: Timestamp, sequence: u32) -> Result<BatchId, NameError> {
    let time = jiff::Timestamp::from_microsecond(now.as_micros()).unwrap_or_default();
    BatchId::new(format!("{}-{sequence:03}", time.strftime("%Y%m%d-%H%M%S")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_when_and_which() {
        let now = Timestamp::parse("2026-11-15T07:15:02.987Z").unwrap();
        assert_eq!(batch_id(now, 1).unwrap().as_str(), "20261115-071502-001");
        assert_eq!(batch_id(now, 1234).unwrap().as_str(), "20261115-071502-1234");
        assert_eq!(batch_id(Timestamp::ZERO, 12).unwrap().as_str(), "19700101-000000-012");
    }
}
