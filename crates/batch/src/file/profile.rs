//! `[profiles.NAME]`: a provider and its settings.

use longshore::ProfileName;
use longshore_ai::{HttpOptions, KeyRef, Profile, ProviderName, SecretString};

use super::SourceText;
use super::error::FileError;
use super::section::{Field, Section};

const KEYS: [&str; 15] = [
    "provider",
    "model",
    "script",
    "delay",
    "prices",
    "endpoint",
    "key",
    "wire",
    "limits",
    "retry",
    "proxy",
    "proxy_key",
    "ca_file",
    "fallback",
    "pool",
];

/// Keys that only simulated providers have.
const SIMULATED_ONLY_KEYS: [&str; 2] = ["script", "delay"];

/// Keys that only remote providers have.
const REMOTE_ONLY_KEYS: [&str; 10] =
    ["endpoint", "key", "wire", "limits", "retry", "proxy", "proxy_key", "ca_file", "fallback", "pool"];

/// Reads a profile and its script.
pub(super) fn read(name: &str, field: &Field<'_>) -> Result<(Profile, Option<SourceText>), FileError> {
    let section = field.section(&KEYS)?;
    let provider = provider(&section)?;
    let unsupported = if provider.is_simulated() { &REMOTE_ONLY_KEYS[..] } else { &SIMULATED_ONLY_KEYS[..] };
    if let Some(field) = unsupported.iter().find_map(|key| section.field(key)) {
        return Err(field.error(format!("`{}` does not apply to provider {provider}", field.name)));
    }
    let base = Profile { prices: section.deserialize("prices")?, ..Profile::new(name, provider) };
    if provider.is_simulated() {
        simulated(base, &section)
    } else {
        ProfileName::new(name).map_err(|error| field.error(error.to_string()))?;
        Ok((remote(base, &section)?, None))
    }
}

fn provider(section: &Section<'_>) -> Result<ProviderName, FileError> {
    let known = ProviderName::ALL.map(|provider| (provider.as_str(), provider));
    section.require("provider")?.choice(&known)
}

fn simulated(base: Profile, section: &Section<'_>) -> Result<(Profile, Option<SourceText>), FileError> {
    let provider = base.provider;
    let model = section.field("model").map(|field| field.text()).transpose()?;
    let delay = section.field("delay").map(|field| field.duration_or_zero()).transpose()?;
    let script = match (provider, section.field("script")) {
        (ProviderName::Scripted, None) => return Err(section.missing("script")),
        (ProviderName::Scripted, Some(field)) => Some(SourceText::file(&field)?),
        (_, Some(field)) => return Err(field.error("only a scripted profile has a script")),
        (_, None) => None,
    };
    let profile = Profile {
        model: model.map_or_else(|| provider.to_string(), str::to_owned),
        delay: delay.unwrap_or_default(),
        script: script.as_ref().map(|script| script.text.clone()),
        ..base
    };
    Ok((profile, script))
}

fn remote(base: Profile, section: &Section<'_>) -> Result<Profile, FileError> {
    let text = |name: &str| section.field(name).map(|field| field.text().map(str::to_owned)).transpose();
    let ca = section.field("ca_file").map(|field| SourceText::file(&field)).transpose()?;
    let profile = Profile {
        model: section.require("model")?.text()?.to_owned(),
        endpoint: text("endpoint")?,
        key: section.field("key").map(|field| key(&field)).transpose()?,
        proxy: text("proxy")?,
        proxy_key: section.field("proxy_key").map(|field| key(&field)).transpose()?,
        ca: ca.map(|ca| ca.text),
        retry: section.deserialize("retry")?,
        wire: section.deserialize("wire")?,
        limits: section.deserialize("limits")?,
        fallback: section.deserialize("fallback")?,
        pool: section.deserialize("pool")?,
        ..base
    };
    check_route(&profile, section)?;
    Ok(profile)
}

/// Checks the proxy and the certificates: a password in the proxy's URL would be stored with the
/// batch.
fn check_route(profile: &Profile, section: &Section<'_>) -> Result<(), FileError> {
    // The key is opened when it is used.
    let proxy_key = profile.proxy_key.as_ref().map(|_| SecretString::from("user:password"));
    let options = HttpOptions::new(profile.proxy.as_deref(), proxy_key, profile.ca.as_deref());
    options.map(drop).map_err(|error| section.error(error.to_string()))
}

/// A reference to the API key. The key itself must not be in the file, which is stored with the
/// batch.
fn key(field: &Field<'_>) -> Result<String, FileError> {
    let text = field.text()?;
    match text.parse::<KeyRef>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let hint = "write `env:NAME`, `file:PATH`, or the name of a key in the vault";
            Err(field.error(format!("`{}`: {error}", field.name)).hint(hint))
        }
    }
}
