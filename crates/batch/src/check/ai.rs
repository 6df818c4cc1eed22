//! The schema and the provider: whether they can be made at all.

use std::sync::Arc;

use longshore_ai::{
    Http, Profile, ProfileError, Provider, ResponseSchema, SecretString, providers,
};

use crate::file::FileError;

use super::Desk;

/// What is known of an answer's fields.
#[derive(Debug)]
pub(super) enum Fields {
    /// The schema names them: these and no others.
    Named(Vec<String>),
    /// There is no schema, or it does not name them.
    Unnamed,
}

pub(super) fn fields(desk: &Desk<'_>) -> Result<Fields, FileError> {
    let Some(schema) = &desk.definition.ai.schema else { return Ok(Fields::Unnamed) };
    let schema = ResponseSchema::new(schema)
        .map_err(|error| desk.error("ai.schema", 0, format!("the schema: {error}")))?;
    Ok(schema.properties().map_or(Fields::Unnamed, Fields::Named))
}

pub(super) fn provider(desk: &Desk<'_>) -> Result<(), FileError> {
    // One of the ledger's is looked up when it is used, and may not be there yet.
    let Some(profile) = desk.definition.ai.profile.written() else { return Ok(()) };
    match open(profile) {
        Ok(_) => Ok(()),
        Err(ProfileError::Script(error)) => {
            Err(desk.error("ai.script", error.line.saturating_sub(1), error.message))
        }
        Err(error) => Err(desk.error("ai.profile", 0, error.to_string())),
    }
}

/// Its provider, with any key: what that is, only whoever asks has to know.
fn open(profile: &Profile) -> Result<Arc<dyn Provider>, ProfileError> {
    if profile.provider.is_simulated() {
        return longshore_ai::open(profile);
    }
    let key = profile.key.as_ref().map(|_| SecretString::from("key"));
    providers::open(profile, key, &Http::new())
}
