//! `[mail]`: the message to each row, instead of `[ai]`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use longshore::{Timestamp, did_you_mean, time_zones};

use crate::definition::{Mail, MailMode};

use super::error::FileError;
use super::section::{Field, Section};
use super::source_map::SourceMap;
use super::{Overrides, SourceText, ai};

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
const MODES: [(&str, MailMode); 2] = [("daily", MailMode::Daily), ("immediate", MailMode::Immediate)];
/// Default of `items`: the list of PRE with the new items.
const DEFAULT_ITEMS: &str = "items";
/// Default of `last`: the items' column that grows.
const DEFAULT_LAST: &str = "id";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The mail settings, if the file has `[mail]`.
pub(super) fn read(
    root: &Section<'_>,
    overrides: &Overrides,
    now: Timestamp,
    source_map: &mut SourceMap,
) -> Result<Option<Mail>, FileError> {
    root.exclusive(&["ai", "mail"])?;
    root.exclusive(&["profiles", "mail"])?;
    let Some(section) = root.section("mail", &KEYS)? else {
        return match overrides.mode {
            None => Ok(None),
            Some(_) => Err(root.error("only a batch with a section [mail] has a mode")),
        };
    };
    let mode = section.field("mode").map(|field| field.choice(&MODES)).transpose()?;
    let mode = overrides.mode.or(mode).unwrap_or_default();
    let zone = section.field("zone").map(|field| zone(&field)).transpose()?;
    let timeout = section.field("timeout").map(|field| field.positive_duration()).transpose()?;
    let since = section.field("since").map(|field| text(&field, source_map)).transpose()?;
    if mode == MailMode::Immediate && since.is_none() {
        let hint = "the column of `pre.sql` that says where the last message to the row ended";
        return Err(section.missing("since").hint(hint));
    }
    let mut optional = |key: &str, default: &str| {
        section.field(key).map_or(Ok(default.to_owned()), |field| text(&field, source_map))
    };
    let (items, last) = (optional("items", DEFAULT_ITEMS)?, optional("last", DEFAULT_LAST)?);
    let mut require = |key: &str| text(&section.require(key)?, source_map);
    Ok(Some(Mail {
        mode,
        day: day(now, &zone.unwrap_or(TimeZone::UTC)),
        from: require("from")?,
        to: require("to")?,
        subject: require("subject")?,
        headers: headers(&section, source_map)?,
        items,
        last,
        since,
        same: same(&section)?,
        folder: section.file.unresolved_dir.clone(),
        timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        pool: section.field("pool").map(|field| ai::pool(&field)).transpose()?,
    }))
}

/// The time zone in which a day ends at midnight.
fn zone(field: &Field<'_>) -> Result<TimeZone, FileError> {
    let given = field.text()?;
    jiff::tz::db().get(given).map_err(|_| {
        let error = field.error(format!("`{}`: there is no time zone `{given}`", field.name));
        error.hint(zone_hint(given))
    })
}

/// A hint for an unknown time zone: `Berlin` is `Europe/Berlin`.
pub fn zone_hint(given: &str) -> String {
    let known = time_zones();
    let wanted = given.to_lowercase().replace(' ', "_");
    let city = |zone: &&String| zone.rsplit('/').next().is_some_and(|city| city.to_lowercase() == wanted);
    let suggest = known.iter().find(city).map(String::as_str);
    match suggest.or_else(|| did_you_mean(given, known.iter().map(String::as_str))) {
        Some(zone) => format!("did you mean `{zone}`?"),
        None => "zones are named as in the IANA list: Europe/Berlin, America/New_York, UTC".into(),
    }
}

/// The calendar day in this zone.
fn day(now: Timestamp, zone: &TimeZone) -> String {
    let now = jiff::Timestamp::from_microsecond(now.as_micros()).unwrap_or_default();
    zone.to_datetime(now).date().to_string()
}

/// The body template of `[mail]`, if the file has that section.
pub(super) fn template(root: &Section<'_>) -> Result<Option<SourceText>, FileError> {
    let Some(section) = root.section("mail", &KEYS)? else { return Ok(None) };
    let written = SourceText::inline_or_file(&section, "template", "template_file")?;
    let hint = "write the MJML there, or its file as `template_file`";
    written.map_or_else(|| Err(section.missing("template").hint(hint)), |one| Ok(Some(one)))
}

fn text(field: &Field<'_>, source_map: &mut SourceMap) -> Result<String, FileError> {
    source_map.put(&field.name, field.text_location());
    Ok(field.text()?.to_owned())
}

fn headers(section: &Section<'_>, source_map: &mut SourceMap) -> Result<BTreeMap<String, String>, FileError> {
    let Some(field) = section.field("headers") else { return Ok(BTreeMap::new()) };
    let fields = field.section_with_any_keys()?.fields();
    fields.iter().map(|(name, field)| Ok(((*name).to_owned(), text(field, source_map)?))).collect()
}

/// Lists of columns.
fn same(section: &Section<'_>) -> Result<Vec<Vec<String>>, FileError> {
    let Some(field) = section.field("same") else { return Ok(Vec::new()) };
    let lists = field.items().ok_or_else(|| field.type_error("a list of lists of columns"))?;
    let lists = lists.iter().map(|list| {
        let columns = list.items().ok_or_else(|| list.type_error("a list of columns"))?;
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
            // Clocks go back: this Sunday has 25 hours.
            ("Europe/Vienna", "2026-10-24T21:59:59Z", "2026-10-24"),
            ("Europe/Vienna", "2026-10-24T22:00:00Z", "2026-10-25"),
            ("Europe/Vienna", "2026-10-25T22:59:59Z", "2026-10-25"),
            ("Europe/Vienna", "2026-10-25T23:00:00Z", "2026-10-26"),
            ("America/New_York", "2026-11-16T04:59:59Z", "2026-11-15"),
            // Samoa skipped a day.
            ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29"),
            ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31"),
        ] {
            assert_eq!(day_in(zone, now), day, "{now} in {zone}");
        }
    }

    #[test]
    fn a_zone_that_is_nearly_right_is_guessed() {
        for (given, suggest) in
            [("Europe/Berln", "Europe/Berlin"), ("berlin", "Europe/Berlin"), ("new york", "America/New_York")]
        {
            assert_eq!(zone_hint(given), format!("did you mean `{suggest}`?"));
        }
        assert!(zone_hint("qqqqqqqqq").contains("IANA"));
    }
}
