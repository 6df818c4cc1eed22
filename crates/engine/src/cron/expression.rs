//! Cron expressions without a time zone: parse, and find the next matching date and time.
//!
//! Implemented here because the libraries for it cost more to build than the rest of the engine's
//! dependencies (a second `syn`, `darling`, `derive_builder`), or lack seconds and years.

use std::ops::RangeInclusive;

use jiff::civil::{Date, DateTime, Time, Weekday};

use super::CronError;

/// Seven fields. A five-field expression fires at second 0 of every year.
#[derive(Debug, Clone)]
pub(super) struct CronExpression {
    pub(super) second: Field,
    pub(super) minute: Field,
    pub(super) hour: Field,
    pub(super) day: Field,
    pub(super) month: Field,
    pub(super) weekday: Field,
    pub(super) year: Field,
}

/// The values that one field accepts.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) terms: Vec<Term>,
    /// The field is `*` or `?`.
    pub(super) is_any: bool,
}

/// One element of a field's comma-separated list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Term {
    /// `5`, `1-5`, `*/15`, `10-40/5`.
    Range { first: i16, last: i16, step: i16 },
    /// `L`: the last day of the month.
    LastDay,
    /// `15W`: the weekday (Monday to Friday) nearest to that day of the same month.
    NearestWeekday(i16),
    /// `LW`: the last weekday (Monday to Friday) of the month.
    LastWeekday,
    /// `fri#2`: the second Friday of the month.
    Nth { weekday: i16, nth: i16 },
    /// `5L` or `fri#L`: the last Friday of the month.
    LastOf { weekday: i16 },
}

/// The syntax of a field: its name in errors, its range and its named values.
struct Syntax {
    name: &'static str,
    values: RangeInclusive<i16>,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const SYNTAX: [Syntax; 7] = [
    Syntax { name: "second", values: 0..=59, names: &[] },
    Syntax { name: "minute", values: 0..=59, names: &[] },
    Syntax { name: "hour", values: 0..=23, names: &[] },
    Syntax { name: "day", values: 1..=31, names: &[] },
    Syntax { name: "month", values: 1..=12, names: &MONTHS },
    Syntax { name: "weekday", values: 0..=7, names: &WEEKDAYS },
    Syntax { name: "year", values: 1..=9999, names: &[] },
];
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// The calendar repeats after 400 years, weekdays included: an expression without a match by then
/// never matches.
const CALENDAR_CYCLE: i16 = 400;

impl CronExpression {
    pub(super) fn parse(expression: &str) -> Result<Self, CronError> {
        if expression.contains('@') {
            let name = expression.trim();
            let known = NICKNAMES.iter().find(|(nickname, _)| nickname.eq_ignore_ascii_case(name));
            let (_, meaning) = known.ok_or_else(|| CronError::Nickname(name.to_owned()))?;
            return Self::parse(meaning);
        }
        let given: Vec<&str> = expression.split_whitespace().collect();
        if !(5..=7).contains(&given.len()) {
            return Err(CronError::Fields { found: given.len() });
        }
        let omitted_seconds = usize::from(given.len() == 5);
        let field = |index: usize| {
            let text = match index.checked_sub(omitted_seconds) {
                None => "0",
                Some(position) => given.get(position).unwrap_or(&"*"),
            };
            Field::parse(text, &SYNTAX[index]).map_err(|problem| {
                let offset = text.as_ptr() as usize - expression.as_ptr() as usize;
                CronError::Field {
                    field: SYNTAX[index].name,
                    text: text.to_owned(),
                    position: expression[..offset].chars().count() + 1,
                    problem,
                }
            })
        };
        Ok(Self {
            second: field(0)?,
            minute: field(1)?,
            hour: field(2)?,
            day: field(3)?,
            month: field(4)?,
            weekday: field(5)?,
            year: field(6)?,
        })
    }

    /// Whether hour, minute or second says "every": such an expression follows elapsed time when
    /// clocks change.
    pub(super) fn repeats_within_a_day(&self) -> bool {
        let everywhere = |field: &Field, last: i16| {
            let spans = |term: &Term| matches!(term, Term::Range { first: 0, last: l, .. } if *l == last);
            field.terms.iter().any(spans)
        };
        everywhere(&self.second, 59) || everywhere(&self.minute, 59) || everywhere(&self.hour, 23)
    }

    /// The first match at or after `start`, which has no fraction of a second.
    pub(super) fn next_from(&self, start: DateTime) -> Option<DateTime> {
        let mut date = start.date();
        let last_year = if self.year.is_any { date.year().saturating_add(CALENDAR_CYCLE) } else { 9999 };
        let mut earliest = Some(start.time());
        while date.year() <= last_year {
            if !self.year.accepts(date.year()) {
                date = Date::new(date.year().checked_add(1)?, 1, 1).ok()?;
            } else if !self.month.accepts(date.month().into()) {
                date = date.last_of_month().tomorrow().ok()?;
            } else {
                let time = if self.accepts_day(date) { self.time_from(earliest) } else { None };
                if let Some(time) = time {
                    return Some(date.to_datetime(time));
                }
                date = date.tomorrow().ok()?;
            }
            earliest = None;
        }
        None
    }

    /// The first time of a day at or after `earliest`.
    fn time_from(&self, earliest: Option<Time>) -> Option<Time> {
        let earliest = earliest.unwrap_or(Time::midnight());
        for hour in self.hour.values(earliest.hour(), 23) {
            let same_hour = hour == earliest.hour();
            for minute in self.minute.values(if same_hour { earliest.minute() } else { 0 }, 59) {
                let same_minute = same_hour && minute == earliest.minute();
                let first = if same_minute { earliest.second() } else { 0 };
                if let Some(second) = self.second.values(first, 59).next() {
                    return Time::new(hour, minute, second, 0).ok();
                }
            }
        }
        None
    }

    /// If both day fields are restricted, a day that matches either matches.
    fn accepts_day(&self, date: Date) -> bool {
        let day = || self.day.terms.iter().any(|term| term.accepts_date(date));
        let weekday = || self.weekday.terms.iter().any(|term| term.accepts_weekday(date));
        match (self.day.is_any, self.weekday.is_any) {
            (true, true) => true,
            (false, true) => day(),
            (true, false) => weekday(),
            (false, false) => day() || weekday(),
        }
    }
}

impl Field {
    fn parse(text: &str, syntax: &Syntax) -> Result<Self, String> {
        let terms = text.split(',').map(|term| Term::parse(term, syntax)).collect::<Result<_, _>>()?;
        Ok(Self { terms, is_any: matches!(text, "*" | "?") })
    }

    fn accepts(&self, value: i16) -> bool {
        self.terms.iter().any(|term| term.accepts(value))
    }

    fn values(&self, first: i8, last: i8) -> impl Iterator<Item = i8> {
        (first..=last).filter(|value| self.accepts((*value).into()))
    }
}

impl Term {
    fn parse(text: &str, syntax: &Syntax) -> Result<Self, String> {
        if let Some(special) = Self::parse_special(&text.to_ascii_lowercase(), syntax)? {
            return Ok(special);
        }
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, step)) => (range, Some(parse_step(step, syntax)?)),
        };
        let (min, max) = (*syntax.values.start(), *syntax.values.end());
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => match (syntax.value(first)?, syntax.value(last)?) {
                // Sunday is 0 at the start of a range and 7 at its end, as in `fri-sun`.
                (first, 0) if syntax.name == "weekday" && first > 0 => (first, 7),
                range => range,
            },
            None if matches!(range, "*" | "?") => (min, max),
            None => {
                let value = syntax.value(range)?;
                (value, if step.is_some() { max } else { value })
            }
        };
        if first > last {
            return Err(format!("the range {range} ends before it begins"));
        }
        Ok(Self::Range { first, last, step: step.unwrap_or(1) })
    }

    fn parse_special(text: &str, syntax: &Syntax) -> Result<Option<Self>, String> {
        Ok(match syntax.name {
            "day" if text == "l" => Some(Self::LastDay),
            "day" if text == "lw" => Some(Self::LastWeekday),
            "day" => match text.strip_suffix('w') {
                Some(day) => Some(Self::NearestWeekday(syntax.value(day)?)),
                None => None,
            },
            "weekday" => match (text.split_once('#'), text.strip_suffix('l')) {
                (Some((weekday, "l")), _) | (None, Some(weekday)) => {
                    Some(Self::LastOf { weekday: syntax.value(weekday)? % 7 })
                }
                (Some((weekday, nth)), _) => {
                    let nth = nth.parse().ok().filter(|nth| (1..=5).contains(nth));
                    let nth = nth.ok_or("# takes 1 to 5, or L for the last of the month")?;
                    Some(Self::Nth { weekday: syntax.value(weekday)? % 7, nth })
                }
                (None, None) => None,
            },
            _ => None,
        })
    }

    fn accepts(self, value: i16) -> bool {
        matches!(self, Self::Range { first, last, step }
            if (first..=last).contains(&value) && (value - first) % step == 0)
    }

    fn accepts_date(self, date: Date) -> bool {
        let day = i16::from(date.day());
        match self {
            Self::LastDay => date == date.last_of_month(),
            Self::NearestWeekday(target) => nearest_weekday(date, target) == Some(day),
            Self::LastWeekday => nearest_weekday(date, date.days_in_month().into()) == Some(day),
            other => other.accepts(day),
        }
    }

    fn accepts_weekday(self, date: Date) -> bool {
        let today = i16::from(date.weekday().to_sunday_zero_offset());
        match self {
            Self::Nth { weekday, nth } => today == weekday && (i16::from(date.day()) - 1) / 7 == nth - 1,
            Self::LastOf { weekday } => today == weekday && date.day() + 7 > date.days_in_month(),
            other => other.accepts(today) || (today == 0 && other.accepts(7)),
        }
    }
}

/// The day of `date`'s month that is Monday to Friday and nearest to `target`.
fn nearest_weekday(date: Date, target: i16) -> Option<i16> {
    let last = i16::from(date.days_in_month());
    let day = Date::new(date.year(), date.month(), target.try_into().ok()?).ok()?;
    Some(match day.weekday() {
        Weekday::Saturday if target == 1 => 3,
        Weekday::Saturday => target - 1,
        Weekday::Sunday if target == last => last - 2,
        Weekday::Sunday => target + 1,
        _ => target,
    })
}

fn parse_step(text: &str, syntax: &Syntax) -> Result<i16, String> {
    let max = *syntax.values.end();
    let step = text.parse().ok().filter(|step| (1..=max).contains(step));
    step.ok_or_else(|| format!("the step `{text}` is not a number from 1 to {max}"))
}

impl Syntax {
    fn value(&self, text: &str) -> Result<i16, String> {
        let (min, max) = (*self.values.start(), *self.values.end());
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        if let Some(index) = named.and_then(|index| i16::try_from(index).ok()) {
            return Ok(min + index);
        }
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse().ok().filter(|value| digits && self.values.contains(value));
        value.ok_or_else(|| match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => {
                format!("`{text}` is not a number from {min} to {max}, nor {first} to {last}")
            }
            _ => format!("`{text}` is not a number from {min} to {max}"),
        })
    }
}
