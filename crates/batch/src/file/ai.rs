//! `[ai]` and `[profiles]`: who is asked, and how.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::{PoolName, ProfileName};
use longshore_ai::{Profile, ProviderName};
use serde_json::{Number, Value};
use toml::de::DeValue;

use crate::definition::{Ai, ByProfile, ProviderBatch, Through};

use super::Written;
use super::error::FileError;
use super::places::Places;
use super::profile;
use super::section::{Field, Section};

const KEYS: [&str; 11] = [
    "profile",
    "through",
    "mode",
    "provider_batch",
    "system",
    "max_tokens",
    "temperature",
    "timeout",
    "schema",
    "schema_file",
    "pool",
];
const BULK_KEYS: [&str; 3] = ["gather", "look", "lag"];
const MODES: [(&str, Mode); 2] =
    [("direct", Mode::Direct), ("provider-batch", Mode::ProviderBatch)];
const WAYS: [(&str, Through); 2] = [("desk", Through::Desk), ("queue", Through::Queue)];

/// Whether questions are asked one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Direct,
    ProviderBatch,
}

/// What the names of the tenant's own profiles begin with.
const OWN: char = '@';

/// The profile that is there without being defined.
const ECHO: &str = "echo";

/// Nobody is asked more often than this how far it is.
const LEAST_LOOK: Duration = Duration::from_millis(10);

const MAX_TOKENS: u32 = 1024;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest temperature that any provider knows.
const HOTTEST: f64 = 2.0;

pub(super) fn read(root: &Section<'_>, places: &mut Places) -> Result<Ai, FileError> {
    let section = root.need_section("ai", &KEYS)?;
    let max_tokens = section.field("max_tokens").map(|field| field.small_count()).transpose()?;
    let timeout = section.field("timeout").map(|field| field.span()).transpose()?;
    let system = section.field("system").map(|field| field.text()).transpose()?;
    let profile = profile(root, &section, places)?;
    let ai = Ai {
        through: through(&section, &profile)?,
        provider_batch: provider_batch(&section)?,
        profile,
        system: system.map(str::to_owned),
        max_tokens: max_tokens.unwrap_or(MAX_TOKENS),
        temperature: temperature(&section)?,
        timeout: timeout.unwrap_or(TIMEOUT),
        schema: schema(&section, places)?,
        pool: section.field("pool").map(|field| pool(&field)).transpose()?,
    };
    match (ai.check_provider_batch(), section.field("mode")) {
        (Err(why), Some(field)) => {
            let hint = "providers `anthropic` and `openai` have batches; mode = \"direct\" asks \
                        each question by itself";
            Err(field.error(why).hint(hint))
        }
        _ => Ok(ai),
    }
}

/// Whether a file's rows ask together, as far as can be said before the section is read.
pub(super) fn is_bulk(root: &Section<'_>) -> bool {
    let section = root.field("ai").and_then(|field| field.open_section().ok());
    let mode = section.and_then(|section| section.field("mode"));
    mode.is_some_and(|field| field.choice(&MODES).is_ok_and(|mode| mode == Mode::ProviderBatch))
}

/// How a provider's batches are asked for, if they are.
fn provider_batch(section: &Section<'_>) -> Result<Option<ProviderBatch>, FileError> {
    let mode = section.field("mode").map(|field| field.choice(&MODES)).transpose()?;
    let more = section.section("provider_batch", &BULK_KEYS)?;
    if mode.unwrap_or(Mode::Direct) == Mode::Direct {
        return match more {
            None => Ok(None),
            Some(more) => {
                let words = "[ai.provider_batch] is for mode = \"provider-batch\"";
                Err(more.error(words).hint("say so in [ai], or leave the section out"))
            }
        };
    }
    let usual = ProviderBatch::default();
    let span = |key: &str, usual: Duration| {
        let field = more.as_ref().and_then(|more| more.field(key));
        field.map_or(Ok(usual), |field| field.span())
    };
    Ok(Some(ProviderBatch {
        gather: span("gather", usual.gather)?,
        look: span("look", usual.look)?.max(LEAST_LOOK),
        lag: span("lag", usual.lag)?,
    }))
}

pub(super) fn pool(field: &Field<'_>) -> Result<PoolName, FileError> {
    PoolName::new(field.text()?).map_err(|error| field.error(error.to_string()))
}

fn temperature(section: &Section<'_>) -> Result<f64, FileError> {
    let Some(field) = section.field("temperature") else { return Ok(0.0) };
    match field.number()? {
        hot if hot > HOTTEST => Err(field.error(format!("`{}` is above {HOTTEST}", field.name))),
        number => Ok(number),
    }
}

/// The profile that `[ai]` names: one of the file's, or with an @ one of the tenant's own. The others are read too: a mistake in one is still a mistake.
fn profile(
    root: &Section<'_>,
    section: &Section<'_>,
    places: &mut Places,
) -> Result<ByProfile, FileError> {
    let mut profiles = BTreeMap::from([(ECHO.to_owned(), (echo(), None))]);
    if let Some(field) = root.field("profiles") {
        for (name, field) in field.open_section()?.fields() {
            profiles.insert(name.to_owned(), profile::read(name, &field)?);
        }
    }
    let known: Vec<String> = profiles.keys().cloned().collect();
    let known = || known.iter().map(String::as_str);
    let listed = || format!("there are: {}", known().collect::<Vec<_>>().join(", "));
    let missing = || section.missing("profile").hint(listed());
    let field = section.field("profile").ok_or_else(missing)?;
    let name = field.text()?;
    places.put("ai.profile", field.place());
    if let Some(own) = name.strip_prefix(OWN) {
        let own = ProfileName::new(own).map_err(|error| field.error(error.to_string()))?;
        return Ok(ByProfile::Named(own));
    }
    let Some((profile, script)) = profiles.remove(name) else {
        let error = field.error(format!("there is no profile `{name}`"));
        return Err(error.hint(listed()).meant(name, known()));
    };
    if let Some(script) = script {
        places.put("ai.script", script.place);
    }
    Ok(profile.into())
}

fn echo() -> Profile {
    Profile { model: ECHO.to_owned(), ..Profile::new(ECHO, ProviderName::Echo) }
}

/// Who sends the questions. What goes through the queue names its profile, and no more.
fn through(section: &Section<'_>, profile: &ByProfile) -> Result<Through, FileError> {
    let Some(field) = section.field("through") else { return Ok(Through::default()) };
    match (field.choice(&WAYS)?, profile) {
        (Through::Queue, ByProfile::Written(_)) => {
            let words = "only one of the tenant's own profiles can be asked through the queue";
            let hint = "`longshore profile add` makes one; [ai] names it as \"@NAME\"";
            Err(field.error(words).hint(hint))
        }
        (through, _) => Ok(through),
    }
}

fn schema(section: &Section<'_>, places: &mut Places) -> Result<Option<Value>, FileError> {
    match section.one_of(&["schema", "schema_file"])? {
        None => Ok(None),
        Some((0, field)) => {
            places.put("ai.schema", field.place());
            field.open_section()?;
            Ok(Some(json(field.value()).ok_or_else(|| unusable(&field))?))
        }
        Some((_, field)) => {
            let written = Written::file(&field)?;
            places.put("ai.schema", written.place.clone());
            let schema = serde_json::from_str(&written.text).map_err(|error| {
                let place = written.place.down(error.line().saturating_sub(1));
                place.error(format!("this is not JSON: {error}"))
            })?;
            Ok(Some(schema))
        }
    }
}

fn unusable(field: &Field<'_>) -> FileError {
    field.error(format!("`{}` holds a number that JSON does not have", field.name))
}

/// A TOML value as JSON; dates become text. `None`: a number that JSON does not have.
pub(super) fn json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            Value::from(i64::from_str_radix(number.as_str(), number.radix()).ok()?)
        }
        DeValue::Float(number) => Value::Number(Number::from_f64(number.as_str().parse().ok()?)?),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| json(item.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let entry = |(key, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, _)| {
                let value: &toml::Spanned<DeValue<'_>> = value;
                Some((key.get_ref().to_string(), json(value.get_ref())?))
            };
            Value::Object(table.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}
