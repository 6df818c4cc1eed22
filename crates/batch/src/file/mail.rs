//! `[mail]`: what goes to each row, in the place of `[ai]`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use longshore::{Timestamp, zones};
use longshore_ai::{Profile, ProviderName};

use crate::definition::{Ai, Mail, MailMode, Through};

use super::error::{FileError, did_you_mean};
use super::places::Places;
use super::section::{Field, Section};
use super::{Overrides, Written, ai};

const KEYS: [&str; 14] = [
    "mode",
    "zone",
    "from",
    "to",
    "subject",
    "headers",
    "template",
    "template_file",
    "items",
    "last",
    "since",
    "same",
    "pool",
    "timeout",
];
const MODES: [(&str, MailMode); 2] =
    [("daily", MailMode::Daily), ("immediate", MailMode::Immediate)];
/// The list of PRE that has what is new.
const ITEMS: &str = "items";
/// The items' column that grows.
const LAST: &str = "id";
const TIMEOUT: Duration = Duration::from_secs(60);

/// What is written to rows, if they are written to.
pub(super) fn read(
    root: &Section<'_>,
    overrides: &Overrides,
    now: Timestamp,
    places: &mut Places,
) -> Result<Option<Mail>, FileError> {
    root.one_of(&["ai", "mail"])?;
    root.one_of(&["profiles", "mail"])?;
    let Some(section) = root.section("mail", &KEYS)? else {
        return match overrides.mode {
            None => Ok(None),
            Some(_) => Err(root.error("only a batch with a section [mail] has a mode")),
        };
    };
    let mode = section.field("mode").map(|field| field.choice(&MODES)).transpose()?;
    let mode = overrides.mode.or(mode).unwrap_or_default();
    let zone = section.field("zone").map(|field| zone(&field)).transpose()?;
    let since = section.field("since").map(|field| text(&field, places)).transpose()?;
    if mode == MailMode::Immediate && since.is_none() {
        let hint = "the column of `pre.sql` that says where the last message to the row ended";
        return Err(section.missing("since").hint(hint));
    }
    let mut own = |key: &str, usual: &str| {
        section.field(key).map_or(Ok(usual.to_owned()), |field| text(&field, places))
    };
    let (items, last) = (own("items", ITEMS)?, own("last", LAST)?);
    let mut need = |key: &str| text(&section.need(key)?, places);
    Ok(Some(Mail {
        mode,
        day: day(now, &zone.unwrap_or(TimeZone::UTC)),
        from: need("from")?,
        to: need("to")?,
        subject: need("subject")?,
        headers: headers(&section, places)?,
        items,
        last,
        since,
        same: same(&section)?,
        folder: section.file.near.clone(),
    }))
}

/// The zone whose midnight ends a day.
fn zone(field: &Field<'_>) -> Result<TimeZone, FileError> {
    let given = field.text()?;
    jiff::tz::db().get(given).map_err(|_| {
        let error = field.error(format!("`{}`: there is no time zone `{given}`", field.name));
        error.hint(zone_hint(given))
    })
}

/// What may be meant by a zone that there is not: `Berlin` is `Europe/Berlin`.
pub fn zone_hint(given: &str) -> String {
    let known = zones();
    let wanted = given.to_lowercase().replace(' ', "_");
    let city =
        |zone: &&String| zone.rsplit('/').next().is_some_and(|city| city.to_lowercase() == wanted);
    let meant = known.iter().find(city).map(String::as_str);
    match meant.or_else(|| did_you_mean(given, known.iter().map(String::as_str))) {
        Some(zone) => format!("did you mean `{zone}`?"),
        None => "zones are named as in the IANA list: Europe/Berlin, America/New_York, UTC".into(),
    }
}

/// The day on a calendar in this zone.
fn day(now: Timestamp, zone: &TimeZone) -> String {
    let now = jiff::Timestamp::from_microsecond(now.as_micros()).unwrap_or_default();
    zone.to_datetime(now).date().to_string()
}

/// The page of `[mail]`, if there is such a section.
pub(super) fn template(root: &Section<'_>) -> Result<Option<Written>, FileError> {
    let Some(section) = root.section("mail", &KEYS)? else { return Ok(None) };
    let written = Written::either(&section, "template", "template_file")?;
    let hint = "write the MJML there, or its file as `template_file`";
    written.map_or_else(|| Err(section.missing("template").hint(hint)), |one| Ok(Some(one)))
}

/// What the run of such a row goes by: nobody is asked, within so long, under a permit.
pub(super) fn nobody(root: &Section<'_>) -> Result<Ai, FileError> {
    let section = root.need_section("mail", &KEYS)?;
    let timeout = section.field("timeout").map(|field| field.span()).transpose()?;
    Ok(Ai {
        profile: Profile::new("mail", ProviderName::Echo).into(),
        through: Through::Desk,
        provider_batch: None,
        system: None,
        max_tokens: 1,
        temperature: 0.0,
        timeout: timeout.unwrap_or(TIMEOUT),
        schema: Some(Mail::schema()),
        pool: section.field("pool").map(|field| ai::pool(&field)).transpose()?,
    })
}

fn text(field: &Field<'_>, places: &mut Places) -> Result<String, FileError> {
    places.put(&field.name, field.text_place());
    Ok(field.text()?.to_owned())
}

fn headers(
    section: &Section<'_>,
    places: &mut Places,
) -> Result<BTreeMap<String, String>, FileError> {
    let Some(field) = section.field("headers") else { return Ok(BTreeMap::new()) };
    let fields = field.open_section()?.fields();
    fields.iter().map(|(name, field)| Ok(((*name).to_owned(), text(field, places)?))).collect()
}

/// A column, columns, or several lists of columns.
fn same(section: &Section<'_>) -> Result<Vec<Vec<String>>, FileError> {
    let Some(field) = section.field("same") else { return Ok(Vec::new()) };
    let lists = field.items().ok_or_else(|| field.wrong("a list of lists of columns"))?;
    let lists = lists.iter().map(|list| {
        let columns = list.items().ok_or_else(|| list.wrong("a list of columns"))?;
        columns.iter().map(|column| Ok(column.text()?.to_owned())).collect()
    });
    lists.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day_in(zone: &str, now: &str) -> String {
        day(Timestamp::parse(now).unwrap(), &jiff::tz::db().get(zone).unwrap())
    }

    #[test]
    fn a_day_ends_at_midnight_in_its_zone_also_when_clocks_change() {
        for (zone, now, day) in [
            ("UTC", "2026-11-15T23:59:59Z", "2026-11-15"),
            ("UTC", "2026-11-16T00:00:00Z", "2026-11-16"),
            ("Europe/Vienna", "2026-11-15T22:59:59Z", "2026-11-15"),
            ("Europe/Vienna", "2026-11-15T23:00:00Z", "2026-11-16"),
            // Clocks go forward: that Sunday has 23 hours.
            ("Europe/Vienna", "2026-03-28T22:59:59Z", "2026-03-28"),
            ("Europe/Vienna", "2026-03-28T23:00:00Z", "2026-03-29"),
            ("Europe/Vienna", "2026-03-29T21:59:59Z", "2026-03-29"),
            ("Europe/Vienna", "2026-03-29T22:00:00Z", "2026-03-30"),
            // And back: this one has 25.
            ("Europe/Vienna", "2026-10-24T21:59:59Z", "2026-10-24"),
            ("Europe/Vienna", "2026-10-24T22:00:00Z", "2026-10-25"),
            ("Europe/Vienna", "2026-10-25T22:59:59Z", "2026-10-25"),
            ("Europe/Vienna", "2026-10-25T23:00:00Z", "2026-10-26"),
            ("America/New_York", "2026-11-16T04:59:59Z", "2026-11-15"),
            // Samoa left out a day.
            ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29"),
            ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31"),
        ] {
            assert_eq!(day_in(zone, now), day, "{now} in {zone}");
        }
    }

    #[test]
    fn a_zone_that_is_nearly_right_is_guessed() {
        for (given, meant) in [
            ("Europe/Berln", "Europe/Berlin"),
            ("berlin", "Europe/Berlin"),
            ("new york", "America/New_York"),
        ] {
            assert_eq!(zone_hint(given), format!("did you mean `{meant}`?"));
        }
        assert!(zone_hint("qqqqqqqqq").contains("IANA"));
    }
}
