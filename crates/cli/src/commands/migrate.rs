//! `migrate`: migrates the store's schema.

use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::store;

/// Runs the command.
pub async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    let version = store::migrate(settings).await?;
    let answer = serde_json::json!({ "schema": version });
    settings.output.answer(&answer, || format!("{} has schema version {version}", settings.store))?;
    Ok(ExitCode::Good)
}
