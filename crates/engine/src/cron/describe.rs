//! Describes a cron expression in English, such as `At 02:30, on Monday to Friday.`

use super::expression::{CronExpression, Field, Term};

/// Above this number of times per day, minutes and hours are described separately.
const MAX_LISTED_TIMES: usize = 6;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 8] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const ORDINALS: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

pub(super) fn describe(cron: &CronExpression) -> String {
    let parts = [time(cron), day(cron), month(cron), year(cron)];
    let sentence = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let (first, rest) = sentence.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}

fn time(cron: &CronExpression) -> Option<String> {
    if let Some(times) = listed_times(cron) {
        return Some(format!("at {}", join(&times, "and")));
    }
    let second = (cron.second.single() != Some(0)).then(|| repeated(&cron.second, "second"));
    let minute = match (cron.minute.is_any, cron.hour.is_any && cron.minute.listed().is_some()) {
        (true, _) if second.is_some() => None,
        (_, true) => Some(format!("{} past every hour", repeated(&cron.minute, "minute"))),
        _ => Some(repeated(&cron.minute, "minute")),
    };
    let hour = (!cron.hour.is_any).then(|| repeated(&cron.hour, "hour"));
    Some([second, minute, hour].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// The times of a day, if there are few.
fn listed_times(cron: &CronExpression) -> Option<Vec<String>> {
    let second = cron.second.single()?;
    let (hours, minutes) = (cron.hour.listed()?, cron.minute.listed()?);
    if hours.len() * minutes.len() > MAX_LISTED_TIMES {
        return None;
    }
    let at = |hour: i16, minute: i16| match second {
        0 => format!("{hour:02}:{minute:02}"),
        second => format!("{hour:02}:{minute:02}:{second:02}"),
    };
    Some(hours.iter().flat_map(|hour| minutes.iter().map(move |minute| at(*hour, *minute))).collect())
}

fn repeated(field: &Field, unit: &str) -> String {
    match field.terms.as_slice() {
        _ if field.is_any => format!("every {unit}"),
        [Term::Range { first: 0, last, step }]
            if *step > 1 && *last == if unit == "hour" { 23 } else { 59 } =>
        {
            format!("every {step} {unit}s")
        }
        [Term::Range { first, last, step }] if *step > 1 => {
            format!("every {step} {unit}s from {first} to {last}")
        }
        terms => format!(
            "at {unit} {}",
            join(&terms.iter().map(|term| term.describe(&[])).collect::<Vec<_>>(), "and")
        ),
    }
}

fn day(cron: &CronExpression) -> Option<String> {
    let (days, weekdays) = (of_month(&cron.day), of_week(&cron.weekday));
    match (cron.day.is_any, cron.weekday.is_any) {
        (true, true) => None,
        (false, true) => Some(format!("on {days}")),
        (true, false) => Some(format!("on {weekdays}")),
        (false, false) => Some(format!("on {days} or on {weekdays}")),
    }
}

fn of_month(field: &Field) -> String {
    let phrase = |term: &Term| match term {
        Term::LastDay => "the last day of the month".to_owned(),
        Term::LastWeekday => "the last weekday of the month".to_owned(),
        Term::NearestWeekday(day) => format!("the weekday nearest to day {day}"),
        range => format!("day {}", range.describe(&[])),
    };
    join(&field.terms.iter().map(phrase).collect::<Vec<_>>(), "and")
}

fn of_week(field: &Field) -> String {
    let name = |weekday: &i16| WEEKDAYS[usize::from(weekday.unsigned_abs())];
    let phrase = |term: &Term| match term {
        Term::Nth { weekday, nth } => {
            format!("the {} {} of the month", ORDINALS[usize::from(nth.unsigned_abs()) - 1], name(weekday))
        }
        Term::LastOf { weekday } => format!("the last {} of the month", name(weekday)),
        range => range.describe(&WEEKDAYS),
    };
    join(&field.terms.iter().map(phrase).collect::<Vec<_>>(), "and")
}

fn month(cron: &CronExpression) -> Option<String> {
    // Months count from 1.
    let names: Vec<&str> = std::iter::once("").chain(MONTHS).collect();
    let months: Vec<String> = cron.month.terms.iter().map(|term| term.describe(&names)).collect();
    (!cron.month.is_any).then(|| format!("in {}", join(&months, "and")))
}

fn year(cron: &CronExpression) -> Option<String> {
    let years: Vec<String> = cron.year.terms.iter().map(|term| term.describe(&[])).collect();
    (!cron.year.is_any).then(|| format!("in {}", join(&years, "and")))
}

impl Field {
    fn single(&self) -> Option<i16> {
        match self.terms.as_slice() {
            [Term::Range { first, last, .. }] if first == last => Some(*first),
            _ => None,
        }
    }

    /// The values, if the field lists single values.
    fn listed(&self) -> Option<Vec<i16>> {
        let value = |term: &Term| match term {
            Term::Range { first, last, .. } if first == last => Some(*first),
            _ => None,
        };
        let mut values = self.terms.iter().map(value).collect::<Option<Vec<_>>>()?;
        values.sort_unstable();
        values.dedup();
        Some(values)
    }
}

impl Term {
    /// Describes the term with `names` for its values, or with numbers.
    fn describe(&self, names: &[&str]) -> String {
        let Self::Range { first, last, step } = *self else { return String::new() };
        let name = |value: i16| match names.get(usize::from(value.unsigned_abs())) {
            Some(name) => (*name).to_owned(),
            None => value.to_string(),
        };
        match step {
            _ if first == last => name(first),
            1 => format!("{} to {}", name(first), name(last)),
            step => format!("every {step} from {} to {}", name(first), name(last)),
        }
    }
}

/// `a`, `a and b`, `a, b and c`.
fn join(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [front @ .., last] => format!("{} {word} {last}", front.join(", ")),
    }
}
