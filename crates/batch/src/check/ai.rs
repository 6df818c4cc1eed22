//! The schema and the provider: whether they can be made at all.

use longshore_ai::{ProfileError, ResponseSchema};

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
    match longshore_ai::open(&desk.definition.ai.profile) {
        Ok(_) => Ok(()),
        Err(ProfileError::Script(error)) => {
            Err(desk.error("ai.script", error.line.saturating_sub(1), error.message))
        }
        Err(error) => Err(desk.error("ai.profile", 0, error.to_string())),
    }
}
