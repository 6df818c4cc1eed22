//! Parses requests. Each rule has the message for a request that breaks it.

use std::time::Duration;

use longshore::{BatchId, Priority, ProfileName, TenantId};
use serde_json::Value;

use super::ContractError;
use super::fields::{Fields, line, nonempty_text, number, text, whole_number};
use super::metadata::Metadata;
use super::request::{DEFAULT_TIMEOUT, Delivery, Prompt, ReplyTo, Request};
use super::version::Version;
use crate::schema::check_types;

const NAME_RULE: &str = "a name of up to 128 letters, digits, and - _ . :";
const LINE_RULE: &str = "a text of 1 to 200 characters without control characters";

/// Longest timeout: an hour.
const MAX_TIMEOUT_MS: u32 = 3_600_000;

/// Parses a request.
pub(super) fn request(bytes: &[u8]) -> Result<Request, ContractError> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| ContractError("the request is not UTF-8".into()))?;
    let fields = Fields::parse(strip_bom(text))
        .map_err(|ContractError(what)| ContractError(format!("the request {what}")))?;
    from_fields(&fields)
}

/// The text without a byte order mark.
pub(super) fn strip_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn from_fields(fields: &Fields<'_>) -> Result<Request, ContractError> {
    // The version first: the fields of other versions may have another meaning.
    let version = supported_version(fields)?;
    let request_id = request_id(fields)?;
    let customer = customer(fields)?;
    let profile = fields.required("profile_ref", NAME_RULE, |v| ProfileName::new(text(v)?).ok())?;
    let reply_queue = reply_queue(fields)?;
    let defaults = Request::new(request_id, customer, profile, prompt(fields)?);
    let temperature = |v: Value| number(&v, 0.0..=2.0);
    let tokens = |v: Value| whole_number(&v, 1..=u32::MAX);
    Ok(Request {
        version,
        reply_queue,
        model: fields.optional("model_override", LINE_RULE, line)?,
        temperature: fields.optional("temperature", "a number from 0 to 2", temperature)?,
        max_tokens: fields.optional("max_tokens", "a whole number from 1", tokens)?,
        system: fields.optional("system_prompt", "a text", text)?,
        timeout: timeout(fields)?,
        metadata: metadata(fields)?,
        priority: priority(fields)?,
        schema: response_schema(fields)?,
        delivery: delivery(fields)?,
        batch: fields.optional("batch", NAME_RULE, |v| BatchId::new(text(v)?).ok())?,
        ..defaults
    })
}

pub(super) fn version(fields: &Fields<'_>) -> Result<Version, ContractError> {
    let rule = "a text of two numbers, as \"1.0\"";
    fields.required("version", rule, |v| Version::parse(&text(v)?).ok())
}

fn supported_version(fields: &Fields<'_>) -> Result<Version, ContractError> {
    let version = version(fields)?;
    if !version.is_supported() {
        return Err(ContractError(format!("version {version} is not supported, only 1.x")));
    }
    Ok(version)
}

pub(super) fn request_id(fields: &Fields<'_>) -> Result<String, ContractError> {
    fields.required("request_id", LINE_RULE, line)
}

pub(super) fn customer(fields: &Fields<'_>) -> Result<TenantId, ContractError> {
    fields.required("customer", NAME_RULE, |v| TenantId::new(text(v)?).ok())
}

pub(super) fn reply_queue(fields: &Fields<'_>) -> Result<Option<ReplyTo>, ContractError> {
    let rule = "an object with `library` and `name`";
    if fields.optional("reply_queue", rule, |v| v.is_object().then_some(()))?.is_none() {
        return Ok(None);
    }
    let inner = fields.raw("reply_queue").map_or("{}", |raw| raw.get());
    let inner = Fields::parse_prefix(inner);
    let within = |ContractError(what): ContractError| ContractError(format!("in `reply_queue`, {what}"));
    let library = inner.required("library", LIBRARY_RULE, |v| text(v).filter(|t| is_library(t)));
    let name = inner.required("name", NAME_RULE, |v| text(v).filter(|t| is_name(t)));
    Ok(Some(ReplyTo { library: library.map_err(within)?, name: name.map_err(within)? }))
}

const LIBRARY_RULE: &str = "a name of up to 128 letters, digits, and - _ . : # @ $";

fn is_library(text: &str) -> bool {
    consists_of(text, "-_.:#@$")
}

fn is_name(text: &str) -> bool {
    consists_of(text, "-_.:")
}

fn consists_of(text: &str, signs: &str) -> bool {
    (1..=128).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c))
}

fn prompt(fields: &Fields<'_>) -> Result<Prompt, ContractError> {
    let prompt = fields.optional("prompt", "a text that is not empty", nonempty_text)?;
    let reference = fields.optional("prompt_ref", LINE_RULE, line)?;
    match (prompt, reference) {
        (Some(text), None) => Ok(Prompt::Text(text)),
        (None, Some(place)) => Ok(Prompt::Reference(place)),
        (Some(_), Some(_)) => Err(ContractError("give `prompt` or `prompt_ref`, not both".into())),
        (None, None) => Err(ContractError("`prompt` or `prompt_ref` is missing".into())),
    }
}

fn timeout(fields: &Fields<'_>) -> Result<Duration, ContractError> {
    let rule = "a whole number of milliseconds from 1 to 3600000";
    let given = fields.optional("timeout_ms", rule, |v| whole_number(&v, 1..=MAX_TIMEOUT_MS))?;
    Ok(given.map_or(DEFAULT_TIMEOUT, |ms| Duration::from_millis(ms.into())))
}

pub(super) fn metadata(fields: &Fields<'_>) -> Result<Metadata, ContractError> {
    let Some(raw) = fields.raw("metadata") else { return Ok(Metadata::default()) };
    Metadata::parse(raw).ok_or_else(|| ContractError("`metadata` must be an object".into()))
}

fn priority(fields: &Fields<'_>) -> Result<Priority, ContractError> {
    let level = |v: Value| Priority::new(u8::try_from(whole_number(&v, 1..=9)?).ok()?).ok();
    let given = fields.optional("priority", "a whole number from 1 to 9", level)?;
    Ok(given.unwrap_or(Priority::NORMAL))
}

fn response_schema(fields: &Fields<'_>) -> Result<Option<Value>, ContractError> {
    let object = |v: Value| v.is_object().then_some(v);
    let schema = fields.optional("response_schema", "a JSON Schema, as an object", object)?;
    let checked = schema.as_ref().map_or(Ok(()), check_types);
    checked.map_err(|error| ContractError(format!("in `response_schema`, {error}")))?;
    Ok(schema)
}

fn delivery(fields: &Fields<'_>) -> Result<Delivery, ContractError> {
    match fields.optional("stream", "true or false", |v| v.as_bool())? {
        Some(true) => Ok(Delivery::Pieces),
        Some(false) | None => Ok(Delivery::Whole),
    }
}
