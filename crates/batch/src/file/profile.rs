//! `[profiles.NAME]`: a provider and its settings.

use longshore::ProfileName;
use longshore_ai::{KeyRef, Profile, ProviderName};

use super::SourceText;
use super::error::FileError;
use super::section::{Field, Section};

const KEYS: [&str; 11] = [
    "provider", "model", "script", "delay", "prices", "endpoint", "key", "wire", "limits", "fallback", "pool",
];

/// Keys that only simulated providers have.
const SIMULATED_ONLY_KEYS: [&str; 2] = ["script", "delay"];

/// Keys that only remote providers have.
const REMOTE_ONLY_KEYS: [&str; 6] = ["endpoint", "key", "wire", "limits", "fallback", "pool"];

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
    let endpoint = section.field("endpoint").map(|field| field.text()).transpose()?;
    Ok(Profile {
        model: section.require("model")?.text()?.to_owned(),
        endpoint: endpoint.map(str::to_owned),
        key: section.field("key").map(|field| key(&field)).transpose()?,
        wire: section.deserialize("wire")?,
        limits: section.deserialize("limits")?,
        fallback: section.deserialize("fallback")?,
        pool: section.deserialize("pool")?,
        ..base
    })
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
