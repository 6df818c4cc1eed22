//! Real providers: one small file for each wire, one place that sends and waits.
//!
//! | provider | schema | streams | tools | pictures | cache | batches | tells its limits |
//! |---|---|---|---|---|---|---|---|
//! | `echo`, `scripted` | no | in one piece | no | no | no | no | no |
//! | `anthropic` | its own; in words for open objects | yes | yes | yes | marked by the profile | yes | yes |
//! | `openai` | its own; in words where the profile says so | yes | yes | yes | by itself | yes | yes |
//! | `ollama` | its own | yes | yes | not by address | no | no | no |
//! | `gemini` | its own | yes | yes | yes | by itself | no | no |
//!
//! [`capabilities()`] is the same as data.

pub(crate) mod anthropic;
mod base;
mod capabilities;
pub(crate) mod dialect;
pub(crate) mod failure;
mod gemini;
mod ollama;
pub(crate) mod openai;
pub(crate) mod remote;
mod shape;
mod veil;

use std::sync::Arc;

use hyper::Uri;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use secrecy::{ExposeSecret, SecretString};

use crate::ask::Provider;
use crate::http::Http;
use crate::profile::{self, Profile, ProfileError, ProviderName};
use base::Base;
pub use capabilities::{Caching, Capabilities, capabilities};
use dialect::Dialect;
use remote::Remote;
use veil::Veil;

/// Makes a profile's provider, simulated or real. Opens no connection yet.
pub fn open(
    profile: &Profile,
    key: Option<SecretString>,
    http: &Http,
) -> Result<Arc<dyn Provider>, ProfileError> {
    Ok(match profile.provider {
        ProviderName::Echo | ProviderName::Scripted => profile::open(profile)?,
        ProviderName::Anthropic => remote(anthropic::Anthropic::new(profile), profile, key, http)?,
        ProviderName::Openai => remote(openai::Openai::new(profile), profile, key, http)?,
        ProviderName::Ollama => remote(ollama::Ollama::new(profile), profile, key, http)?,
        ProviderName::Gemini => remote(gemini::Gemini::new(profile), profile, key, http)?,
    })
}

fn remote<D: Dialect>(
    dialect: D,
    profile: &Profile,
    key: Option<SecretString>,
    http: &Http,
) -> Result<Arc<dyn Provider>, ProfileError> {
    Ok(Arc::new(wired(dialect, profile, key, http)?))
}

/// A wire with the address and the headers of a profile.
pub(crate) fn wired<D: Dialect>(
    dialect: D,
    profile: &Profile,
    key: Option<SecretString>,
    http: &Http,
) -> Result<Remote<D>, ProfileError> {
    // Keys from files end with a line's end.
    let key = key.map(|key| SecretString::from(key.expose_secret().trim()));
    if D::NEEDS_KEY && key.is_none() && profile.endpoint.is_none() {
        return Err(ProfileError::NoKey(profile.name.clone(), profile.provider));
    }
    let base = base::<D>(profile)?;
    let headers = headers(&dialect, profile, key.as_ref())?;
    let others = profile.wire.headers.values().map(|value| SecretString::from(value.as_str()));
    let veil = Veil::new(key.into_iter().chain(others));
    let model = profile.model.clone();
    Ok(Remote { dialect, http: http.clone(), base, headers, model, veil })
}

/// Where requests go, without the path of each. An address may end with the version of the API, as
/// other clients want it, or leave it out.
fn base<D: Dialect>(profile: &Profile) -> Result<Base, ProfileError> {
    let address = profile.endpoint.as_deref().unwrap_or(D::ADDRESS).trim_end_matches('/');
    let wrong = |why: &str| ProfileError::Endpoint(profile.name.clone(), why.to_owned());
    let uri: Uri = address.parse().map_err(|_| wrong("it is no address"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it begins neither with http:// nor with https://"));
    }
    // Whatever stands there would be shown with the address; a key belongs into `key`.
    if uri.authority().is_some_and(|host| host.as_str().contains('@')) || uri.query().is_some() {
        return Err(wrong("it has a password or a query"));
    }
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let versioned =
        last.strip_prefix('v').is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()));
    let prefix =
        if versioned || D::PREFIX.strip_prefix('/') == Some(last) { "" } else { D::PREFIX };
    Ok(Base::new(format!("{address}{prefix}")))
}

/// The headers of each request. What the profile adds takes the place of what is usual.
fn headers<D: Dialect>(
    dialect: &D,
    profile: &Profile,
    key: Option<&SecretString>,
) -> Result<HeaderMap, ProfileError> {
    let mut headers = dialect.headers();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("longshore/", env!("CARGO_PKG_VERSION"))),
    );
    if let Some(key) = key {
        let (name, before) = dialect.key_header();
        let value = format!("{before}{}", key.expose_secret());
        headers.insert(HeaderName::from_static(name), secret(profile, name, &value)?);
    }
    for (name, value) in &profile.wire.headers {
        let value = secret(profile, name, value)?;
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| ProfileError::Header(profile.name.clone(), name.clone()))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A header's value that is never printed.
fn secret(profile: &Profile, name: &str, value: &str) -> Result<HeaderValue, ProfileError> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| ProfileError::Header(profile.name.clone(), name.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
