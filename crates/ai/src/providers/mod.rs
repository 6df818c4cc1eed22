//! Providers: one adapter per API, and one HTTP client loop for all.
//!
//! | provider | schema | streams | tools | images | cache | batches | reports limits |
//! |---|---|---|---|---|---|---|---|
//! | `echo`, `scripted` | no | in one piece | no | no | no | no | no |
//! | `anthropic` | enforced; in the prompt for open objects | yes | yes | yes | marked by the profile | yes | yes |
//! | `openai` | enforced; in the prompt where the profile says so | yes | yes | yes | automatic | yes | yes |
//! | `ollama` | enforced | yes | yes | not by URL | no | no | no |
//! | `gemini` | enforced | yes | yes | yes | automatic | no | no |
//!
//! [`capabilities()`] returns the same as data.

pub(crate) mod anthropic;
mod capabilities;
pub(crate) mod error_mapping;
mod gemini;
pub(crate) mod http_provider;
mod ollama;
pub(crate) mod openai;
pub(crate) mod provider_adapter;
mod schema_compat;

use std::sync::Arc;

use bytes::Bytes;
use hyper::Uri;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use longshore::HumanDuration;
use secrecy::{ExposeSecret, SecretString};

use crate::http::Http;
use crate::model_api::Provider;
use crate::profile::{self, Profile, ProfileError, ProviderName};
pub use capabilities::{Caching, Capabilities, capabilities};
use error_mapping::Redactor;
use http_provider::{BaseUrl, HttpProvider};
use provider_adapter::ProviderAdapter;
pub(crate) use provider_adapter::tool_input;

/// Opens a profile's provider, simulated or real. Does not connect yet.
pub fn open(
    profile: &Profile,
    key: Option<SecretString>,
    http: &Http,
) -> Result<Arc<dyn Provider>, ProfileError> {
    let wire = profile.wire.clone();
    Ok(match profile.provider {
        ProviderName::Echo | ProviderName::Scripted => profile::open_simulated(profile)?,
        ProviderName::Anthropic => {
            Arc::new(http_provider(anthropic::Anthropic { wire }, profile, key, http)?)
        }
        ProviderName::Openai => Arc::new(http_provider(openai::Openai { wire }, profile, key, http)?),
        ProviderName::Ollama => Arc::new(http_provider(ollama::Ollama { wire }, profile, key, http)?),
        ProviderName::Gemini => Arc::new(http_provider(gemini::Gemini { wire }, profile, key, http)?),
    })
}

/// An adapter with the base URL and the headers of a profile.
pub(crate) fn http_provider<D: ProviderAdapter>(
    adapter: D,
    profile: &Profile,
    key: Option<SecretString>,
    http: &Http,
) -> Result<HttpProvider<D>, ProfileError> {
    // Keys from files end with a newline.
    let key = key.map(|key| SecretString::from(key.expose_secret().trim()));
    if D::NEEDS_KEY && key.is_none() && profile.endpoint.is_none() {
        return Err(ProfileError::NoKey(profile.name.clone(), profile.provider));
    }
    let base = base::<D>(profile)?;
    let headers = headers(&adapter, profile, key.as_ref())?;
    let others = profile.wire.headers.values().map(|value| SecretString::from(value.as_str()));
    let redactor = Redactor::new(key.into_iter().chain(others));
    let (model, http) = (profile.model.clone(), http.clone());
    let idle_timeout = profile.retry.idle_timeout.map(|HumanDuration(time)| time);
    let on_unsupported = profile.on_unsupported;
    Ok(HttpProvider { adapter, http, base, headers, model, redactor, idle_timeout, on_unsupported })
}

/// The base URL of requests. An endpoint may end with the API version, as other clients want it, or
/// omit it.
fn base<D: ProviderAdapter>(profile: &Profile) -> Result<BaseUrl, ProfileError> {
    let address = profile.endpoint.as_deref().unwrap_or(D::ADDRESS).trim_end_matches('/');
    let wrong = |why: &str| ProfileError::Endpoint(profile.name.clone(), why.to_owned());
    let uri: Uri = address.parse().map_err(|_| wrong("it is not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it must begin with http:// or https://"));
    }
    // A password or query would be shown with the URL; a key belongs in `key`.
    if uri.authority().is_some_and(|host| host.as_str().contains('@')) || uri.query().is_some() {
        return Err(wrong("it has a password or a query"));
    }
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let versioned = last.strip_prefix('v').is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()));
    let prefix = if versioned || D::PREFIX.strip_prefix('/') == Some(last) { "" } else { D::PREFIX };
    Ok(BaseUrl::new(format!("{address}{prefix}")))
}

/// The headers of every request. The profile's own headers override the defaults.
fn headers<D: ProviderAdapter>(
    adapter: &D,
    profile: &Profile,
    key: Option<&SecretString>,
) -> Result<HeaderMap, ProfileError> {
    let mut headers = adapter.headers();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("longshore/", env!("CARGO_PKG_VERSION"))));
    if let Some(key) = key {
        let (name, before) = adapter.key_header();
        let value = format!("{before}{}", key.expose_secret());
        headers.insert(HeaderName::from_static(name), secret(profile, name, value.into())?);
    }
    for (name, value) in &profile.wire.headers {
        let value = secret(profile, name, value.as_str().into())?;
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| ProfileError::Header(profile.name.clone(), name.clone()))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The bytes of a secret header, wiped when the last copy of the header is dropped.
struct SecretHeader(SecretString);

impl AsRef<[u8]> for SecretHeader {
    fn as_ref(&self) -> &[u8] {
        self.0.expose_secret().as_bytes()
    }
}

/// A header value that is never printed.
fn secret(profile: &Profile, name: &str, value: SecretString) -> Result<HeaderValue, ProfileError> {
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(SecretHeader(value)))
        .map_err(|_| ProfileError::Header(profile.name.clone(), name.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
