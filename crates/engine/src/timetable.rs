//! Cron expressions in time zones: which time follows another.
//!
//! Expressions have five fields, six with seconds in front, or seven with a year behind, or are a
//! name as `@daily`. Days of the month and of the week that are both given mean either.
//!
//! When clocks change, an expression with set hours and minutes (`30 2 * * *`, `0,30 1-3 * * *`)
//! fires once for every time it names: a time that does not exist that day fires at the moment of
//! the shift (several become one), and one that comes twice fires the first time only. One that
//! says "every" in its hour, minute or second (`*`, `*/15`) goes by the time that passes: nothing
//! for the hour that is left out, and in both of the hours that have the same name.
//!
//! `cron_expression` finds matching dates and times without a zone; this module maps them to moments.

mod cron_expression;
mod describe;

use cron_expression::CronExpression;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use longshore_core::Timestamp;

/// An expression or zone that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimetableError {
    /// The number of fields is wrong.
    #[error("a cron expression has 5 fields (minute hour day month weekday), this one has {found}")]
    Fields {
        /// How many there are.
        found: usize,
    },
    /// A field cannot be read.
    #[error("{field} `{text}` (at character {position}): {problem}")]
    Field {
        /// Which field, in words.
        field: &'static str,
        /// What it says.
        text: String,
        /// Where it begins, from 1.
        position: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A name with an at sign that is none.
    #[error("`{0}` is not one of @yearly, @monthly, @weekly, @daily and @hourly")]
    Nickname(String),
    /// There is no such zone.
    #[error("there is no time zone `{0}`")]
    Zone(String),
}

/// The times of a schedule.
#[derive(Debug, Clone)]
pub struct Timetable {
    cron: CronExpression,
    zone: TimeZone,
    pace: Pace,
}

/// What an expression goes by when clocks change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The times on the wall.
    Set,
    /// The time that passes.
    Passing,
}

impl Timetable {
    /// Reads an expression and an IANA zone.
    ///
    /// ```
    /// # use longshore::{Timestamp, Timetable};
    /// let nights = Timetable::new("30 2 * * *", "Europe/Berlin").unwrap();
    /// let noon = Timestamp::parse("2026-03-28T12:00:00Z").unwrap();
    /// // That night 02:30 does not exist: clocks go from 02:00 to 03:00.
    /// let next = nights.after(noon).unwrap();
    /// assert_eq!(nights.local(next), "2026-03-29T03:00:00+02:00");
    /// ```
    pub fn new(expression: &str, zone: &str) -> Result<Self, TimetableError> {
        let (cron, zone) = (CronExpression::parse(expression)?, find_zone(zone)?);
        let pace = if cron.repeats_within_a_day() { Pace::Passing } else { Pace::Set };
        Ok(Self { cron, zone, pace })
    }

    /// The first time after `time`; `None` if there is none, as for the 30th of February.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let start = jiff::Timestamp::from_microsecond(time.as_micros()).ok()?;
        let next = match self.pace {
            Pace::Set => self.after_on_the_wall(start),
            Pace::Passing => self.after_passing(start),
        }?;
        Some(Timestamp::from_micros(next.as_microsecond()))
    }

    /// Walks the times on the wall, each of which is one moment.
    fn after_on_the_wall(&self, start: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut wall = self.zone.to_datetime(start);
        loop {
            wall = self.matching(wall, false)?;
            let moment = self.moment(wall)?;
            // In an hour that comes twice, the wall may show times that have fired.
            if moment > start {
                return Some(moment);
            }
        }
    }

    /// The moment of a time on the wall: the first of two, or the shift if there is none.
    fn moment(&self, wall: DateTime) -> Option<jiff::Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Gap { before, .. } => {
                // Read by the old offset it lies at or behind the shift.
                let behind = before.to_timestamp(wall).ok()?;
                let behind = behind.checked_add(SignedDuration::from_nanos(1)).ok()?;
                self.zone.preceding(behind).next().map(|shift| shift.timestamp())
            }
            _ => ambiguous.earlier().ok(),
        }
    }

    /// Walks the stretches between two shifts, in each of which wall and time go side by side.
    fn after_passing(&self, start: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let (mut from, mut inclusive) = (start, false);
        loop {
            let offset = self.zone.to_offset(from);
            let wall = self.matching(offset.to_datetime(from), inclusive)?;
            let moment = offset.to_timestamp(wall).ok()?;
            let shift = self.zone.following(from).next().map(|shift| shift.timestamp());
            match shift.filter(|shift| *shift <= moment) {
                None => return Some(moment),
                Some(shift) => (from, inclusive) = (shift, true),
            }
        }
    }

    /// The first date and time that matches, at or after the second of `wall`.
    fn matching(&self, wall: DateTime, inclusive: bool) -> Option<DateTime> {
        let second = wall.with().subsec_nanosecond(0).build().ok()?;
        let first = if inclusive {
            second
        } else {
            second.checked_add(SignedDuration::from_secs(1)).ok()?
        };
        self.cron.next_from(first)
    }

    /// A time as people in the zone read it, with its offset.
    pub fn local(&self, time: Timestamp) -> String {
        match jiff::Timestamp::from_microsecond(time.as_micros()) {
            Ok(at) => at.display_with_offset(self.zone.to_offset(at)).to_string(),
            Err(_) => time.to_string(),
        }
    }

    /// The expression in words.
    pub fn describe(&self) -> String {
        describe::describe(&self.cron)
    }
}

/// Every zone that is known, by its IANA name.
pub fn zones() -> Vec<String> {
    jiff::tz::db().available().map(|name| name.to_string()).collect()
}

fn find_zone(name: &str) -> Result<TimeZone, TimetableError> {
    jiff::tz::db().get(name).map_err(|_| TimetableError::Zone(name.to_owned()))
}
