//! The fields of a JSON request: each is parsed once, by name; unused fields are reported.

use std::borrow::Cow;

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::{GatewayError, GatewayErrorKind};
use crate::chat::Effort;
use crate::profile::CacheFor;
use crate::raw_json::RawObject;
use crate::schema::check_types;

/// The fields that were not taken yet.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

/// Parses a body as an object; its fields stay unparsed.
pub(super) fn object(body: Bytes) -> Result<RawObject, GatewayError> {
    RawObject::parse(body).map_err(|error| {
        GatewayError::new(GatewayErrorKind::InvalidRequest, format!("the body is not a JSON object: {error}"))
    })
}

impl<'a> Fields<'a> {
    /// The fields of a body.
    pub(super) fn of(body: &'a RawObject) -> Self {
        Self(body.fields().collect())
    }

    /// Takes a field, if it is present and not null.
    pub(super) fn take<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>, GatewayError> {
        let Some(at) = self.0.iter().rposition(|(other, _)| other == name) else {
            return Ok(None);
        };
        let (_, raw) = self.0.swap_remove(at);
        let value = serde_json::from_str(raw);
        value.map_err(|error| GatewayError::of(name, format!("`{name}`: {}", without_value(&error))))
    }

    /// Takes a required field.
    pub(super) fn require<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, GatewayError> {
        let value = self.take(name)?;
        value.ok_or_else(|| GatewayError::of(name, format!("`{name}` is missing")))
    }

    /// The remaining fields that matter: not null, not `ignored`, and without one of their
    /// `defaults`. Of a duplicate, one is taken and the other remains.
    pub(super) fn remaining(
        &self,
        ignored: &[&str],
        defaults: Defaults<'_>,
    ) -> std::vec::IntoIter<Cow<'static, str>> {
        self.untaken(|name| !ignored.contains(&name), defaults)
    }

    /// The remaining fields with one of these names: not null, and without one of their `defaults`.
    fn named(&self, names: &[&str], defaults: Defaults<'_>) -> std::vec::IntoIter<Cow<'static, str>> {
        self.untaken(|name| names.contains(&name), defaults)
    }

    fn untaken(
        &self,
        is_meant: impl Fn(&str) -> bool,
        defaults: Defaults<'_>,
    ) -> std::vec::IntoIter<Cow<'static, str>> {
        let is_default = |name: &str, value: &str| {
            let value: String = value.split_ascii_whitespace().collect();
            value == "null" || defaults.iter().any(|(n, values)| *n == name && values.contains(&&*value))
        };
        let meant = self.0.iter().filter(|(name, raw)| is_meant(name) && !is_default(name, raw));
        let names: Vec<_> = meant.map(|(name, _)| Cow::Owned(format!("`{}`", short(name)))).collect();
        names.into_iter()
    }
}

/// Values of fields that ask for the default behaviour.
type Defaults<'a> = &'a [(&'a str, &'a [&'a str])];

/// The error of a parser without the text that it quotes, which may be part of a prompt.
fn without_value(error: &serde_json::Error) -> String {
    let mut message = error.to_string();
    for (before, after) in [("string \"", "\", expected"), ("`", "`, expected")] {
        let (start, end) = (message.find(before), message.rfind(after));
        if let (Some(start), Some(end)) = (start.map(|start| start + before.len()), end)
            && start < end
        {
            message.replace_range(start..end, "…");
        }
    }
    message
}

/// What a request has that not every provider has.
#[derive(Debug, Default)]
pub(super) struct Extras {
    /// What matters and what a translation would lose.
    pub(super) unsupported: Vec<Cow<'static, str>>,
    /// What a translation would lose without harm.
    pub(super) ignored: Vec<Cow<'static, str>>,
    /// What may change the price of the call in a way that is not reserved.
    pub(super) unpriced: Vec<Cow<'static, str>>,
    /// How many answers it asks for.
    pub(super) choices: u32,
    /// Images that a translation would lose.
    pub(super) images: u32,
}

impl Extras {
    /// Adds what a translation would lose.
    pub(super) fn unsupported(&mut self, what: impl Into<Cow<'static, str>>) {
        add(&mut self.unsupported, what.into());
    }

    /// Adds what a translation would lose without harm.
    pub(super) fn ignored(&mut self, what: impl Into<Cow<'static, str>>) {
        add(&mut self.ignored, what.into());
    }

    /// Adds what may change the price, and is translated.
    pub(super) fn unpriced_part(&mut self, what: impl Into<Cow<'static, str>>) {
        add(&mut self.unpriced, what.into());
    }

    /// Adds what a translation would lose, and what may change the price.
    pub(super) fn unpriced(&mut self, what: impl Into<Cow<'static, str>>) {
        let what = what.into();
        add(&mut self.unpriced, what.clone());
        add(&mut self.unsupported, what);
    }

    /// Adds the fields that no parser took, as far as they matter or may change the price.
    pub(super) fn remaining(
        &mut self,
        fields: &Fields<'_>,
        ignored: &[&str],
        priced: &[&str],
        defaults: &[(&str, &[&str])],
    ) {
        fields.remaining(ignored, defaults).for_each(|what| add(&mut self.unsupported, what));
        fields.named(ignored, defaults).for_each(|what| add(&mut self.ignored, what));
        fields.remaining(priced, defaults).for_each(|what| add(&mut self.unpriced, what));
    }

    /// Adds an image in a place where a translation only has text.
    pub(super) fn lost_image(&mut self, place: &str) {
        self.images = self.images.saturating_add(1);
        self.unsupported(format!("images in {place}"));
    }

    /// Data that is sent as an image counts as one, but not every server takes only images there.
    pub(super) fn image_type(&mut self, media_type: &str) {
        if !media_type.starts_with("image/") {
            self.unpriced_part("images that are of another media type than `image/…`");
        }
    }
}

/// Reasons that are kept for an error message.
const MAX_REASONS: usize = 20;

/// Adds a reason once. At the limit, those before it suffice to refuse the request.
fn add(reasons: &mut Vec<Cow<'static, str>>, what: Cow<'static, str>) {
    if reasons.len() < MAX_REASONS && !reasons.contains(&what) {
        reasons.push(what);
    }
}

/// The beginning of a client's text, for error messages.
pub(super) fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(40)]
}

/// One string, or a list of strings.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub(super) enum StringOrList {
    One(String),
    More(Vec<String>),
}

impl From<StringOrList> for Vec<String> {
    fn from(texts: StringOrList) -> Self {
        match texts {
            StringOrList::One(text) => vec![text],
            StringOrList::More(texts) => texts,
        }
    }
}

/// A cache mark.
#[derive(Debug, Deserialize)]
pub(super) struct CacheControl {
    #[serde(default)]
    ttl: Option<String>,
}

impl CacheControl {
    pub(super) fn cache_for(&self) -> CacheFor {
        if self.ttl.as_deref() == Some("1h") { CacheFor::Hour } else { CacheFor::Minutes }
    }
}

/// How long the model may think, by its name. An unknown one can only be passed through.
pub(super) fn effort(field: &'static str, name: Option<String>, extras: &mut Extras) -> Option<Effort> {
    let effort = Effort::deserialize(name?.into_deserializer());
    let effort: Result<_, serde::de::value::Error> = effort;
    effort.map_err(|_| extras.unsupported(field)).ok()
}

/// A message's content: a text, or a list of parts.
pub(super) enum Content<P> {
    Text(String),
    Parts(Vec<P>),
}

impl<P> Content<P> {
    /// Parses content. Chooses by the first character, so that an error names what is wrong with a
    /// part.
    pub(super) fn parse<'a>(raw: &'a RawValue) -> serde_json::Result<Self>
    where
        P: Deserialize<'a>,
    {
        if raw.get().starts_with('[') {
            serde_json::from_str(raw.get()).map(Self::Parts)
        } else {
            serde_json::from_str(raw.get()).map(Self::Text)
        }
    }
}

/// A schema that names no unknown type.
pub(super) fn checked_schema(param: &str, schema: Value) -> Result<Value, GatewayError> {
    match check_types(&schema) {
        Ok(()) => Ok(schema),
        Err(error) => Err(GatewayError::of(param, format!("the schema is invalid: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_noticed_unless_it_is_default() {
        let body = r#"{"a":1,"b":null,"c":"x","n":1,"m":[ "text" ],"n2":2,"d":{}}"#;
        let body = RawObject::parse(body).unwrap();
        let mut fields = Fields::of(&body);
        assert_eq!(fields.take::<u32>("a").unwrap(), Some(1));
        assert_eq!(fields.take::<u32>("a").unwrap(), None);
        let defaults: &[(&str, &[&str])] = &[("n", &["1"]), ("m", &[r#"["text"]"#]), ("n2", &["1"])];
        let mut left: Vec<_> = fields.remaining(&["c"], defaults).collect();
        left.sort();
        assert_eq!(left, ["`d`", "`n2`"]);
    }

    #[test]
    fn a_member_that_is_wrong_is_named() {
        let body = RawObject::parse(r#"{"stop":3,"max":"many"}"#).unwrap();
        let mut fields = Fields::of(&body);
        let error = fields.take::<u32>("max").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("max"));
        assert!(error.message.contains("`max`: invalid type: string \"…\", expected u32"), "{error:?}");
        let error = fields.take::<StringOrList>("stop").unwrap_err();
        assert!(error.message.contains("a text or a list of texts"), "{error:?}");
        let error = fields.require::<u32>("none").unwrap_err();
        assert_eq!(error.message, "`none` is missing");
        assert!(object("[1]".into()).is_err() && object("{".into()).is_err());
    }
}
