//! `[ai]` and `[profiles]`: the model, and how it is called.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::byte_size::ByteSize;
use longshore::{PoolName, ProfileName};
use longshore_ai::{Cost, Profile, ProviderName};
use serde_json::{Number, Value};
use toml::de::DeValue;

use crate::definition::{Ai, AskRoute, DEFAULT_MAX_PROMPT, ProfileRef, ProviderBatchOptions};

use super::SourceText;
use super::error::FileError;
use super::profile;
use super::section::{Field, Section};
use super::source_map::SourceMap;

const KEYS: [&str; 14] = [
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
    "keep_answers",
    "budget",
    "max_prompt",
];
const PROVIDER_BATCH_KEYS: [&str; 3] = ["gather", "look", "lag"];
const MODES: [(&str, AskMode); 2] =
    [("direct", AskMode::Direct), ("provider-batch", AskMode::ProviderBatchOptions)];
const ROUTES: [(&str, AskRoute); 2] = [("local", AskRoute::Local), ("queue", AskRoute::Queue)];

/// How questions are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskMode {
    Direct,
    ProviderBatchOptions,
}

/// Prefix of the names of the tenant's profiles.
const TENANT_PROFILE_PREFIX: char = '@';

/// The built-in profile.
const ECHO: &str = "echo";

/// Minimum polling interval of a provider batch.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

const DEFAULT_MAX_TOKENS: u32 = 1024;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The highest temperature that any provider accepts.
const MAX_TEMPERATURE: f64 = 2.0;

pub(super) fn read(root: &Section<'_>, source_map: &mut SourceMap) -> Result<Ai, FileError> {
    let section = root.require_section("ai", &KEYS)?;
    read_section(root, &section, source_map)
}

/// The settings of `[ai]`, or of a step that asks a model.
pub(super) fn read_section(
    root: &Section<'_>,
    section: &Section<'_>,
    source_map: &mut SourceMap,
) -> Result<Ai, FileError> {
    let max_tokens = section.field("max_tokens").map(|field| field.small_count()).transpose()?;
    let timeout = section.field("timeout").map(|field| field.positive_duration()).transpose()?;
    let system = section.field("system").map(|field| field.text()).transpose()?;
    let profile = profile(root, section, source_map)?;
    // A step has the batch's budget, and its limit of prompts unless it has its own.
    let batch = root.field("ai").map(|field| field.section_with_any_keys()).transpose()?;
    let of_batch = |key: &str| batch.as_ref().and_then(|section| section.field(key));
    let max_prompt = section.field("max_prompt").or_else(|| of_batch("max_prompt"));
    let ai = Ai {
        through: through(section, &profile)?,
        provider_batch: provider_batch(section)?,
        profile,
        system: system.map(str::to_owned),
        max_tokens: max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        temperature: temperature(section)?,
        timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        schema: schema(section, source_map)?,
        keep_answers: section.deserialize("keep_answers")?,
        budget: of_batch("budget").map(|field| budget(&field)).transpose()?,
        max_prompt: max_prompt.map_or(Ok(DEFAULT_MAX_PROMPT), |field| bytes(&field))?,
        pool: section.field("pool").map(|field| pool(&field)).transpose()?,
    };
    if let (Some(_), Some(field)) = (ai.provider_batch, section.field("budget")) {
        let message = "a provider's batch has no budget: its answers' cost is known only when all are there";
        let hint = "`longshore tenant set NAME --budget-usd` limits a tenant, provider batches included";
        return Err(field.error(message).hint(hint));
    }
    match (ai.check_provider_batch(), section.field("mode")) {
        (Err(why), Some(field)) => {
            let hint = "providers `anthropic` and `openai` have a batch API; mode = \"direct\" \
                        sends each question by itself";
            Err(field.error(why).hint(hint))
        }
        _ => Ok(ai),
    }
}

/// Whether the file asks for a provider batch, as far as can be known before `[ai]` is read.
pub(super) fn uses_provider_batch(root: &Section<'_>) -> bool {
    let section = root.field("ai").and_then(|field| field.section_with_any_keys().ok());
    let mode = section.and_then(|section| section.field("mode"));
    mode.is_some_and(|field| field.choice(&MODES).is_ok_and(|mode| mode == AskMode::ProviderBatchOptions))
}

/// The settings of the provider batch, if the file asks for one.
fn provider_batch(section: &Section<'_>) -> Result<Option<ProviderBatchOptions>, FileError> {
    let mode = section.field("mode").map(|field| field.choice(&MODES)).transpose()?;
    let options = section.section("provider_batch", &PROVIDER_BATCH_KEYS)?;
    if mode.unwrap_or(AskMode::Direct) == AskMode::Direct {
        return match options {
            None => Ok(None),
            Some(options) => {
                let message = "[ai.provider_batch] is for mode = \"provider-batch\"";
                Err(options.error(message).hint("say so in [ai], or leave the section out"))
            }
        };
    }
    let default = ProviderBatchOptions::default();
    let setting = |key: &str, default: Duration| {
        let field = options.as_ref().and_then(|options| options.field(key));
        field.map_or(Ok(default), |field| field.positive_duration())
    };
    Ok(Some(ProviderBatchOptions {
        gather: setting("gather", default.gather)?,
        look: setting("look", default.look)?.max(MIN_POLL_INTERVAL),
        lag: setting("lag", default.lag)?,
    }))
}

pub(super) fn pool(field: &Field<'_>) -> Result<PoolName, FileError> {
    PoolName::new(field.text()?).map_err(|error| field.error(error.to_string()))
}

fn budget(field: &Field<'_>) -> Result<Cost, FileError> {
    let text = match field.value() {
        DeValue::Integer(_) | DeValue::Float(_) => field.number()?.to_string(),
        _ => field.text()?.to_owned(),
    };
    match text.parse::<Cost>() {
        Ok(Cost(0)) => Err(field.error(format!("`{}` must be above 0", field.name))),
        parsed => parsed.map_err(|error| field.error(format!("`{}`: {error}", field.name))),
    }
}

fn bytes(field: &Field<'_>) -> Result<u64, FileError> {
    let size = match field.value() {
        DeValue::Integer(_) => field.count()?,
        _ => {
            let parsed = field.text()?.parse::<ByteSize>();
            parsed.map_err(|error| field.error(format!("`{}`: {error}", field.name)))?.0
        }
    };
    if size == 0 {
        return Err(field.error(format!("`{}` must be above 0", field.name)));
    }
    Ok(size)
}

fn temperature(section: &Section<'_>) -> Result<f64, FileError> {
    let Some(field) = section.field("temperature") else { return Ok(0.0) };
    match field.number()? {
        temperature if temperature > MAX_TEMPERATURE => {
            Err(field.error(format!("`{}` is above {MAX_TEMPERATURE}", field.name)))
        }
        number => Ok(number),
    }
}

/// The profile that `[ai]` names: one of the file's or, with an @, one of the tenant's. The file's
/// other profiles are read too, so that mistakes in them are reported.
fn profile(
    root: &Section<'_>,
    section: &Section<'_>,
    source_map: &mut SourceMap,
) -> Result<ProfileRef, FileError> {
    let mut profiles = BTreeMap::from([(ECHO.to_owned(), (echo(), None))]);
    if let Some(field) = root.field("profiles") {
        for (name, field) in field.section_with_any_keys()?.fields() {
            profiles.insert(name.to_owned(), profile::read(name, &field)?);
        }
    }
    let known: Vec<String> = profiles.keys().cloned().collect();
    let known = || known.iter().map(String::as_str);
    let listed = || format!("expected one of: {}", known().collect::<Vec<_>>().join(", "));
    let missing = || section.missing("profile").hint(listed());
    let field = section.field("profile").ok_or_else(missing)?;
    let name = field.text()?;
    source_map.put(&field.name, field.location());
    if let Some(name) = name.strip_prefix(TENANT_PROFILE_PREFIX) {
        let name = ProfileName::new(name).map_err(|error| field.error(error.to_string()))?;
        return Ok(ProfileRef::Named(name));
    }
    let Some((profile, script)) = profiles.remove(name) else {
        let error = field.error(format!("there is no profile `{name}`"));
        return Err(error.hint(listed()).suggest(name, known()));
    };
    if let Some(script) = script {
        source_map.put(format!("{}.script", section.name()), script.location);
    }
    Ok(profile.into())
}

fn echo() -> Profile {
    Profile { model: ECHO.to_owned(), ..Profile::new(ECHO, ProviderName::Echo) }
}

/// The worker that makes the calls. A request through the queue carries only the name of its
/// profile.
fn through(section: &Section<'_>, profile: &ProfileRef) -> Result<AskRoute, FileError> {
    let Some(field) = section.field("through") else { return Ok(AskRoute::default()) };
    match (field.choice(&ROUTES)?, profile) {
        (AskRoute::Queue, ProfileRef::Inline(_)) => {
            let message = "only one of the tenant's own profiles can be asked through the queue";
            let hint = "`longshore profile add` makes one; [ai] names it as \"@NAME\"";
            Err(field.error(message).hint(hint))
        }
        (through, _) => Ok(through),
    }
}

fn schema(section: &Section<'_>, source_map: &mut SourceMap) -> Result<Option<Value>, FileError> {
    match section.exclusive(&["schema", "schema_file"])? {
        None => Ok(None),
        Some((0, field)) => {
            source_map.put(format!("{}.schema", section.name()), field.location());
            field.section_with_any_keys()?;
            Ok(Some(json(field.value()).ok_or_else(|| invalid_number(&field))?))
        }
        Some((_, field)) => {
            let written = SourceText::file(&field)?;
            source_map.put(format!("{}.schema", section.name()), written.location.clone());
            let schema = serde_json::from_str(&written.text).map_err(|error| {
                let location = written.location.lines_below(error.line().saturating_sub(1));
                location.error(format!("this is not JSON: {error}"))
            })?;
            Ok(Some(schema))
        }
    }
}

fn invalid_number(field: &Field<'_>) -> FileError {
    field.error(format!("`{}` holds a number that JSON does not have", field.name))
}

/// A TOML value as JSON; dates become text. `None` for a number that JSON cannot represent.
pub(super) fn json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => Value::from(i64::from_str_radix(number.as_str(), number.radix()).ok()?),
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
