//! A request's members: each is read once, by name, and what nobody reads is noticed.

use std::borrow::Cow;

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::refusal::{Refusal, Why};
use crate::object::Object;

/// The members of a request that were not read yet.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

/// Reads a body, but not its members.
pub(super) fn object(body: Bytes) -> Result<Object, Refusal> {
    Object::read(body).map_err(|error| {
        Refusal::new(Why::Malformed, format!("the body is not a JSON object: {error}"))
    })
}

impl<'a> Fields<'a> {
    /// The members of a body.
    pub(super) fn of(body: &'a Object) -> Self {
        Self(body.members().collect())
    }

    /// A member, if it is there and not null.
    pub(super) fn take<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>, Refusal> {
        let Some(at) = self.0.iter().rposition(|(other, _)| other == name) else {
            return Ok(None);
        };
        let (_, raw) = self.0.swap_remove(at);
        let value = serde_json::from_str(raw);
        value.map_err(|error| Refusal::of(name, format!("`{name}`: {error}")))
    }

    /// A member that must be there.
    pub(super) fn need<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, Refusal> {
        let value = self.take(name)?;
        value.ok_or_else(|| Refusal::of(name, format!("`{name}` is missing")))
    }

    /// The members that are left and mean something: not null, not one of the `harmless`, not with
    /// the value that they `usual`ly have.
    pub(super) fn left_out(
        self,
        harmless: &[&str],
        usual: &[(&str, &[&str])],
    ) -> impl Iterator<Item = Cow<'static, str>> {
        let means_nothing = |name: &str, value: &str| {
            let value = || value.split_ascii_whitespace().collect::<String>();
            harmless.contains(&name)
                || value() == "null"
                || usual.iter().any(|(n, values)| *n == name && values.contains(&&*value()))
        };
        let rest = self.0.into_iter().filter(move |(name, raw)| !means_nothing(name, raw));
        let rest: Vec<_> = rest.map(|(name, _)| Cow::Owned(format!("`{name}`"))).collect();
        rest.into_iter()
    }
}

/// One text, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub(super) enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl From<OneOrMore> for Vec<String> {
    fn from(texts: OneOrMore) -> Self {
        match texts {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}

/// What was said: a text, or parts of some kind.
pub(super) enum Said<P> {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<P>),
}

impl<P> Said<P> {
    /// Reads what was said. By its first character, so that what is wrong with a part can be told.
    pub(super) fn read<'a>(raw: &'a RawValue) -> serde_json::Result<Self>
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_noticed_unless_it_means_nothing() {
        let body = r#"{"a":1,"b":null,"c":"x","n":1,"m":[ "text" ],"n2":2,"d":{}}"#;
        let body = Object::read(body).unwrap();
        let mut fields = Fields::of(&body);
        assert_eq!(fields.take::<u32>("a").unwrap(), Some(1));
        assert_eq!(fields.take::<u32>("a").unwrap(), None);
        let usual: &[(&str, &[&str])] = &[("n", &["1"]), ("m", &[r#"["text"]"#]), ("n2", &["1"])];
        let mut left: Vec<_> = fields.left_out(&["c"], usual).collect();
        left.sort();
        assert_eq!(left, ["`d`", "`n2`"]);
    }

    #[test]
    fn a_member_that_is_wrong_is_named() {
        let body = Object::read(r#"{"stop":3,"max":"many"}"#).unwrap();
        let mut fields = Fields::of(&body);
        let error = fields.take::<u32>("max").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("max"));
        assert!(error.message.contains("`max`: invalid type"), "{error:?}");
        let error = fields.take::<OneOrMore>("stop").unwrap_err();
        assert!(error.message.contains("a text or a list of texts"), "{error:?}");
        let error = fields.need::<u32>("none").unwrap_err();
        assert_eq!(error.message, "`none` is missing");
        assert!(object("[1]".into()).is_err() && object("{".into()).is_err());
    }
}
