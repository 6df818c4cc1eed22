//! `migrate`: migrates the store's schema.

use super::connect;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, _) = connect(settings).await?;
    let version = store.migrate().await?;
    let answer = serde_json::json!({ "schema": version });
    settings
        .output
        .answer(&answer, || format!("{} has schema version {version}", settings.store))?;
    Ok(ExitCode::Good)
}
