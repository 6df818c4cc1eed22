//! Cron expressions in time zones: finds the next time after a given one.
//!
//! An expression has five fields, six with seconds first, seven with a year last, or is a nickname
//! such as `@daily`. If day of month and day of week are both restricted, a day that matches either
//! matches.
//!
//! When clocks change, an expression with fixed hours and minutes (`30 2 * * *`, `0,30 1-3 * * *`)
//! fires once for each time that it names: a time that does not exist that day fires at the
//! transition (several become one), and a time that occurs twice fires the first time only. An
//! expression with "every" in its hour, minute or second (`*`, `*/15`) follows elapsed time: it
//! skips the missing hour and fires in both repeated hours.
//!
//! `expression` finds matching civil dates and times; this module maps them to instants.

mod describe;
mod expression;

use expression::CronExpression;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use longshore_core::Timestamp;

/// Why an expression or time zone is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// The number of fields is wrong.
    #[error("a cron expression has 5 fields (minute hour day month weekday), this one has {found}")]
    Fields {
        /// The number of fields found.
        found: usize,
    },
    /// A field is invalid.
    #[error("{field} `{text}` (at character {position}): {problem}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// The field's text.
        text: String,
        /// The position of its first character, from 1.
        position: usize,
        /// The problem.
        problem: String,
    },
    /// An unknown `@` nickname.
    #[error("`{0}` is not one of @yearly, @monthly, @weekly, @daily and @hourly")]
    Nickname(String),
    /// An unknown time zone.
    #[error("there is no time zone `{0}`")]
    Zone(String),
}

/// A cron expression in a time zone.
#[derive(Debug, Clone)]
pub struct CronSchedule {
    cron: CronExpression,
    zone: TimeZone,
    clock_mode: ClockMode,
}

/// Clocks are set back by no more than this.
const REPEATED: SignedDuration = SignedDuration::from_hours(3);

/// What an expression follows when clocks change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockMode {
    /// Civil (wall clock) time.
    Wall,
    /// Elapsed time.
    Elapsed,
}

impl CronSchedule {
    /// Parses an expression and an IANA time zone.
    ///
    /// ```
    /// # use longshore::{Timestamp, CronSchedule};
    /// let nights = CronSchedule::new("30 2 * * *", "Europe/Berlin").unwrap();
    /// let noon = Timestamp::parse("2026-03-28T12:00:00Z").unwrap();
    /// // That night 02:30 does not exist: clocks go from 02:00 to 03:00.
    /// let next = nights.next_after(noon).unwrap();
    /// assert_eq!(nights.local(next), "2026-03-29T03:00:00+02:00");
    /// ```
    pub fn new(expression: &str, zone: &str) -> Result<Self, CronError> {
        let (cron, zone) = (CronExpression::parse(expression)?, find_zone(zone)?);
        let clock_mode = if cron.repeats_within_a_day() { ClockMode::Elapsed } else { ClockMode::Wall };
        Ok(Self { cron, zone, clock_mode })
    }

    /// The first time after `time`; `None` if there is none, as for 30 February.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let start = jiff::Timestamp::from_microsecond(time.as_micros()).ok()?;
        let next = match self.clock_mode {
            ClockMode::Wall => self.next_by_wall_clock(start),
            ClockMode::Elapsed => self.next_by_elapsed_time(start),
        }?;
        Some(Timestamp::from_micros(next.as_microsecond()))
    }

    /// Tries matching civil times, each of which is one instant.
    fn next_by_wall_clock(&self, start: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut wall = self.zone.to_datetime(start);
        loop {
            wall = self.next_match(wall, false)?;
            let moment = self.resolve(wall)?;
            // In a repeated hour, a civil time may have fired already.
            if moment > start {
                return Some(moment);
            }
        }
    }

    /// The instant of a civil time: the first of two, or the transition if the time does not exist.
    fn resolve(&self, wall: DateTime) -> Option<jiff::Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Gap { before, .. } => {
                // By the old offset the time is at or after the transition.
                let behind = before.to_timestamp(wall).ok()?;
                let behind = behind.checked_add(SignedDuration::from_nanos(1)).ok()?;
                self.zone.preceding(behind).next().map(|shift| shift.timestamp())
            }
            _ => ambiguous.earlier().ok(),
        }
    }

    /// Searches between two transitions at a time, where civil and elapsed time run in parallel.
    fn next_by_elapsed_time(&self, start: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let (mut from, mut inclusive) = (start, false);
        loop {
            let offset = self.zone.to_offset(from);
            let wall = self.next_match(offset.to_datetime(from), inclusive);
            let moment = wall.and_then(|wall| offset.to_timestamp(wall).ok());
            let transition = self.zone.following(from).next().map(|next| next.timestamp());
            match (moment, transition) {
                // Without a match ahead, the last ones may be in the hour that is about to be repeated.
                (None, Some(transition)) if transition.duration_since(from) <= REPEATED => {
                    (from, inclusive) = (transition, true);
                }
                (Some(moment), Some(transition)) if transition <= moment => {
                    (from, inclusive) = (transition, true);
                }
                _ => return moment,
            }
        }
    }

    /// The first matching date and time at or after the second of `wall`.
    fn next_match(&self, wall: DateTime, inclusive: bool) -> Option<DateTime> {
        let second = wall.with().subsec_nanosecond(0).build().ok()?;
        let first = if inclusive { second } else { second.checked_add(SignedDuration::from_secs(1)).ok()? };
        self.cron.next_from(first)
    }

    /// The local time in the zone, with its offset.
    pub fn local(&self, time: Timestamp) -> String {
        match jiff::Timestamp::from_microsecond(time.as_micros()) {
            Ok(at) => at.display_with_offset(self.zone.to_offset(at)).to_string(),
            Err(_) => time.to_string(),
        }
    }

    /// Describes the expression in English.
    pub fn describe(&self) -> String {
        describe::describe(&self.cron)
    }
}

/// All known IANA time zone names.
pub fn time_zones() -> Vec<String> {
    jiff::tz::db().available().map(|name| name.to_string()).collect()
}

fn find_zone(name: &str) -> Result<TimeZone, CronError> {
    jiff::tz::db().get(name).map_err(|_| CronError::Zone(name.to_owned()))
}
