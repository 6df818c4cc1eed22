//! `prices` of a profile: the short form, and tiers, dates and batch prices.

use longshore::Timestamp;
use longshore_ai::{DatedRate, Price, PriceError, Prices, Rate, Share, Tier, parse_time};
use toml::de::DeValue;

use super::error::FileError;
use super::section::{Field, Section};

const RATE_KEYS: [&str; 9] = [
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_long",
    "batch",
    "batch_input",
    "batch_output",
    "tiers",
];
const TIER_KEYS: [&str; 9] = [
    "above",
    "tier",
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_long",
    "batch_input",
    "batch_output",
];

pub(super) fn read(profile: &Section<'_>) -> Result<Prices, FileError> {
    let known: Vec<&str> = RATE_KEYS.into_iter().chain(["rates"]).collect();
    let Some(section) = profile.section("prices", &known)? else {
        return Ok(Prices::default());
    };
    let rates = items(&section, "rates")?.iter().map(dated_rate).collect::<Result<_, _>>()?;
    Prices::new(rate(&section)?, rates).map_err(|error| section.error(error.to_string()))
}

fn rate(section: &Section<'_>) -> Result<Rate, FileError> {
    Ok(Rate {
        input: price(&section.require("input")?)?,
        output: price(&section.require("output")?)?,
        cache_read: optional_price(section, "cache_read")?,
        cache_write: optional_price(section, "cache_write")?,
        cache_write_long: optional_price(section, "cache_write_long")?,
        batch: section.field("batch").map(|field| share(&field)).transpose()?,
        batch_input: optional_price(section, "batch_input")?,
        batch_output: optional_price(section, "batch_output")?,
        tiers: items(section, "tiers")?.iter().map(tier).collect::<Result<_, _>>()?,
    })
}

fn tier(field: &Field<'_>) -> Result<Tier, FileError> {
    let section = field.section(&TIER_KEYS)?;
    let name = section.field("tier").map(|field| field.text().map(str::to_owned)).transpose()?;
    Ok(Tier {
        above: section.field("above").map(|field| field.whole()).transpose()?,
        tier: name,
        input: optional_price(&section, "input")?,
        output: optional_price(&section, "output")?,
        cache_read: optional_price(&section, "cache_read")?,
        cache_write: optional_price(&section, "cache_write")?,
        cache_write_long: optional_price(&section, "cache_write_long")?,
        batch_input: optional_price(&section, "batch_input")?,
        batch_output: optional_price(&section, "batch_output")?,
    })
}

fn dated_rate(field: &Field<'_>) -> Result<DatedRate, FileError> {
    let known: Vec<&str> = RATE_KEYS.into_iter().chain(["from", "until"]).collect();
    let section = field.section(&known)?;
    Ok(DatedRate {
        from: section.field("from").map(|field| time(&field)).transpose()?,
        until: section.field("until").map(|field| time(&field)).transpose()?,
        rate: rate(&section)?,
    })
}

fn items<'a>(section: &Section<'a>, key: &str) -> Result<Vec<Field<'a>>, FileError> {
    let Some(field) = section.field(key) else { return Ok(Vec::new()) };
    field.items().ok_or_else(|| field.type_error("a list of tables"))
}

fn optional_price(section: &Section<'_>, key: &str) -> Result<Option<Price>, FileError> {
    section.field(key).map(|field| price(&field)).transpose()
}

/// A price as a number or in quotes.
fn price(field: &Field<'_>) -> Result<Price, FileError> {
    let price = match field.value() {
        DeValue::String(text) => text.parse(),
        _ => Price::from_number(field.number()?),
    };
    price.map_err(|error| price_error(field, &error))
}

fn share(field: &Field<'_>) -> Result<Share, FileError> {
    Share::try_from(price(field)?).map_err(|error| price_error(field, &error))
}

fn price_error(field: &Field<'_>, error: &PriceError) -> FileError {
    field.error(format!("`{}`: {error}", field.name))
}

/// A time as a TOML date or in quotes.
fn time(field: &Field<'_>) -> Result<Timestamp, FileError> {
    let text = match field.value() {
        DeValue::Datetime(date) => date.to_string(),
        _ => field.text()?.to_owned(),
    };
    parse_time(&text).map_err(|error| field.error(format!("`{}`: {error}", field.name)))
}
