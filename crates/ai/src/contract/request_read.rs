//! Reading requests: the rules, each with the words that whoever breaks it is told.

use std::time::Duration;

use longshore::{BatchId, Priority, ProfileName, TenantId};
use serde_json::Value;

use super::Malformed;
use super::fields::{Fields, line, number, some_text, text, whole};
use super::metadata::Metadata;
use super::request::{Delivery, Prompt, ReplyTo, Request, TIMEOUT};
use super::version::Version;

const NAME: &str = "a name of up to 128 letters, digits, and - _ . :";
const LINE: &str = "a text of 1 to 200 characters without control characters";

/// The longest that a caller may wait: an hour.
const LONGEST_MS: u32 = 3_600_000;

/// Reads a request.
pub(super) fn read(bytes: &[u8]) -> Result<Request, Malformed> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| Malformed("the request is not UTF-8".into()))?;
    let fields = Fields::read(without_mark(text))
        .map_err(|Malformed(what)| Malformed(format!("the request {what}")))?;
    request(&fields)
}

/// A text without the mark that some systems put before UTF-8.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn request(fields: &Fields<'_>) -> Result<Request, Malformed> {
    // The version first: what another one means by its fields is not known.
    let version = known_version(fields)?;
    let request_id = request_id(fields)?;
    let customer = customer(fields)?;
    let profile = fields.required("profile_ref", NAME, |v| ProfileName::new(text(v)?).ok())?;
    let reply_queue = reply_queue(fields)?;
    let plain = Request::new(request_id, customer, profile, prompt(fields)?);
    let temperature = |v: Value| number(&v, 0.0..=2.0);
    let tokens = |v: Value| whole(&v, 1..=u32::MAX);
    let object = |v: Value| v.is_object().then_some(v);
    Ok(Request {
        version,
        reply_queue,
        model: fields.optional("model_override", LINE, line)?,
        temperature: fields.optional("temperature", "a number from 0 to 2", temperature)?,
        max_tokens: fields.optional("max_tokens", "a whole number from 1", tokens)?,
        system: fields.optional("system_prompt", "a text", text)?,
        timeout: timeout(fields)?,
        metadata: metadata(fields)?,
        priority: priority(fields)?,
        schema: fields.optional("response_schema", "a JSON Schema, as an object", object)?,
        delivery: delivery(fields)?,
        batch: fields.optional("batch", NAME, |v| BatchId::new(text(v)?).ok())?,
        ..plain
    })
}

pub(super) fn version(fields: &Fields<'_>) -> Result<Version, Malformed> {
    let rule = "a text of two numbers, as \"1.0\"";
    fields.required("version", rule, |v| Version::parse(&text(v)?).ok())
}

fn known_version(fields: &Fields<'_>) -> Result<Version, Malformed> {
    let version = version(fields)?;
    if !version.is_known() {
        return Err(Malformed(format!("version {version} is not known here, only 1.x is")));
    }
    Ok(version)
}

pub(super) fn request_id(fields: &Fields<'_>) -> Result<String, Malformed> {
    fields.required("request_id", LINE, line)
}

pub(super) fn customer(fields: &Fields<'_>) -> Result<TenantId, Malformed> {
    fields.required("customer", NAME, |v| TenantId::new(text(v)?).ok())
}

pub(super) fn reply_queue(fields: &Fields<'_>) -> Result<Option<ReplyTo>, Malformed> {
    let rule = "an object with `library` and `name`";
    if fields.optional("reply_queue", rule, |v| v.is_object().then_some(()))?.is_none() {
        return Ok(None);
    }
    let inner = fields.raw("reply_queue").map_or("{}", |raw| raw.get());
    let inner = Fields::read_what_can_be(inner);
    let within = |Malformed(what): Malformed| Malformed(format!("in `reply_queue`, {what}"));
    let library = inner.required("library", LIBRARY, |v| text(v).filter(|t| is_library(t)));
    let name = inner.required("name", NAME, |v| text(v).filter(|t| is_name(t)));
    Ok(Some(ReplyTo { library: library.map_err(within)?, name: name.map_err(within)? }))
}

const LIBRARY: &str = "a name of up to 128 letters, digits, and - _ . : # @ $";

fn is_library(text: &str) -> bool {
    is_made_of(text, "-_.:#@$")
}

fn is_name(text: &str) -> bool {
    is_made_of(text, "-_.:")
}

fn is_made_of(text: &str, signs: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c))
}

fn prompt(fields: &Fields<'_>) -> Result<Prompt, Malformed> {
    let prompt = fields.optional("prompt", "a text that is not empty", some_text)?;
    let reference = fields.optional("prompt_ref", LINE, line)?;
    match (prompt, reference) {
        (Some(text), None) => Ok(Prompt::Text(text)),
        (None, Some(place)) => Ok(Prompt::Reference(place)),
        (Some(_), Some(_)) => {
            Err(Malformed("there may be `prompt` or `prompt_ref`, not both".into()))
        }
        (None, None) => Err(Malformed("`prompt` is missing; or else `prompt_ref`".into())),
    }
}

fn timeout(fields: &Fields<'_>) -> Result<Duration, Malformed> {
    let rule = "a whole number of milliseconds from 1 to 3600000";
    let given = fields.optional("timeout_ms", rule, |v| whole(&v, 1..=LONGEST_MS))?;
    Ok(given.map_or(TIMEOUT, |ms| Duration::from_millis(ms.into())))
}

pub(super) fn metadata(fields: &Fields<'_>) -> Result<Metadata, Malformed> {
    let Some(raw) = fields.raw("metadata") else { return Ok(Metadata::default()) };
    Metadata::read(raw).ok_or_else(|| Malformed("`metadata` must be an object".into()))
}

fn priority(fields: &Fields<'_>) -> Result<Priority, Malformed> {
    let level = |v: Value| Priority::new(u8::try_from(whole(&v, 1..=9)?).ok()?).ok();
    let given = fields.optional("priority", "a whole number from 1 to 9", level)?;
    Ok(given.unwrap_or(Priority::NORMAL))
}

fn delivery(fields: &Fields<'_>) -> Result<Delivery, Malformed> {
    match fields.optional("stream", "true or false", |v| v.as_bool())? {
        Some(true) => Ok(Delivery::Pieces),
        Some(false) | None => Ok(Delivery::Whole),
    }
}
