//! Checks that the schema compiles and that the provider can be opened. A mail batch has neither.

use std::sync::Arc;

use longshore_ai::{Http, Profile, ProfileError, Provider, ResponseSchema, SecretString, providers};

use crate::definition::{Ai, Mail, RowStep};
use crate::file::FileError;

use super::CheckContext;

/// The fields that a reply can have.
#[derive(Debug)]
pub(super) enum AnswerFields {
    /// These and no others: the schema's properties, or the fields of a stored message.
    Named(Vec<String>),
    /// No schema, or one that does not list its properties.
    Any,
}

pub(super) fn fields(context: &CheckContext<'_>) -> Result<AnswerFields, FileError> {
    let ai = match &context.definition.step {
        RowStep::Ai(ai) => ai,
        RowStep::Mail(_) => return Ok(AnswerFields::Named(Mail::reply_fields())),
    };
    let Some(schema) = &ai.schema else { return Ok(AnswerFields::Any) };
    let schema = ResponseSchema::new(schema)
        .map_err(|error| context.error("ai.schema", 0, format!("the schema: {error}")))?;
    Ok(schema.properties().map_or(AnswerFields::Any, AnswerFields::Named))
}

pub(super) fn provider(context: &CheckContext<'_>) -> Result<(), FileError> {
    context.definition.ai().map_or(Ok(()), |ai| profile(context, ai, "ai"))
}

/// Checks that the provider of a question can be opened. `key` is its section.
pub(super) fn profile(context: &CheckContext<'_>, ai: &Ai, key: &str) -> Result<(), FileError> {
    // A tenant's profile is looked up when it is used, and may not exist yet.
    let Some(profile) = ai.profile.inline() else { return Ok(()) };
    match open(profile) {
        Ok(_) => Ok(()),
        Err(ProfileError::Script(error)) => {
            Err(context.error(&format!("{key}.script"), error.line.saturating_sub(1), error.message))
        }
        Err(error) => Err(context.error(&format!("{key}.profile"), 0, error.to_string())),
    }
}

/// The profile's provider, opened with a placeholder key: the real key is needed only for a call.
fn open(profile: &Profile) -> Result<Arc<dyn Provider>, ProfileError> {
    if profile.provider.is_simulated() {
        return longshore_ai::open_simulated(profile);
    }
    let key = profile.key.as_ref().map(|_| SecretString::from("key"));
    providers::open(profile, key, &Http::new())
}
