//! `[profiles.NAME]`: a provider and its settings.

use longshore::ProfileName;
use longshore_ai::{KeyRef, Profile, ProviderName};
use serde::de::DeserializeOwned;

use super::Written;
use super::ai::json;
use super::error::FileError;
use super::prices;
use super::section::{Field, Section};

const KEYS: [&str; 11] = [
    "provider", "model", "script", "delay", "prices", "endpoint", "key", "wire", "limits",
    "fallback", "pool",
];

/// What only simulated providers have.
const SIMULATED: [&str; 2] = ["script", "delay"];

/// What only those have who are asked over a network.
const REAL: [&str; 6] = ["endpoint", "key", "wire", "limits", "fallback", "pool"];

/// Reads a profile, and where its script is written.
pub(super) fn read(name: &str, field: &Field<'_>) -> Result<(Profile, Option<Written>), FileError> {
    let section = field.section(&KEYS)?;
    let provider = provider(&section)?;
    let foreign = if provider.is_simulated() { &REAL[..] } else { &SIMULATED[..] };
    if let Some(field) = foreign.iter().find_map(|key| section.field(key)) {
        return Err(field.error(format!("`{}` is of no use with {provider}", field.name)));
    }
    let basis = Profile { prices: prices::read(&section)?, ..Profile::new(name, provider) };
    if provider.is_simulated() {
        simulated(basis, &section)
    } else {
        ProfileName::new(name).map_err(|error| field.error(error.to_string()))?;
        Ok((real(basis, &section)?, None))
    }
}

fn provider(section: &Section<'_>) -> Result<ProviderName, FileError> {
    let known = ProviderName::ALL.map(|provider| (provider.as_str(), provider));
    section.need("provider")?.choice(&known)
}

fn simulated(
    basis: Profile,
    section: &Section<'_>,
) -> Result<(Profile, Option<Written>), FileError> {
    let provider = basis.provider;
    let model = section.field("model").map(|field| field.text()).transpose()?;
    let delay = section.field("delay").map(|field| field.any_span()).transpose()?;
    let script = match (provider, section.field("script")) {
        (ProviderName::Scripted, None) => return Err(section.missing("script")),
        (ProviderName::Scripted, Some(field)) => Some(Written::file(&field)?),
        (_, Some(field)) => return Err(field.error("only a scripted profile has a script")),
        (_, None) => None,
    };
    let profile = Profile {
        model: model.map_or_else(|| provider.to_string(), str::to_owned),
        delay: delay.unwrap_or_default(),
        script: script.as_ref().map(|script| script.text.clone()),
        ..basis
    };
    Ok((profile, script))
}

fn real(basis: Profile, section: &Section<'_>) -> Result<Profile, FileError> {
    let endpoint = section.field("endpoint").map(|field| field.text()).transpose()?;
    Ok(Profile {
        model: section.need("model")?.text()?.to_owned(),
        endpoint: endpoint.map(str::to_owned),
        key: section.field("key").map(|field| key(&field)).transpose()?,
        wire: part(section, "wire")?,
        limits: part(section, "limits")?,
        fallback: part(section, "fallback")?,
        pool: part(section, "pool")?,
        ..basis
    })
}

/// Where the key is. A key itself has no place in a file that is kept with its batch.
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

/// A part that reads the same as in the ledger.
fn part<T: DeserializeOwned + Default>(section: &Section<'_>, key: &str) -> Result<T, FileError> {
    let Some(field) = section.field(key) else { return Ok(T::default()) };
    let wrong = |why: String| field.error(format!("`{}`: {why}", field.name));
    let value = json(field.value());
    let value =
        value.ok_or_else(|| wrong("it holds a number that JSON does not have".to_owned()))?;
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}
