//! `migrate`: migrates the store's schema, or shows what that would do.

use longshore::migration::{MigrationState, MigrationStatus};
use serde_json::json;

use crate::args::migrate::{MigrateArgs, MigrateCommand};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::store::SchemaMigrator;

/// Runs the command.
pub async fn run(typed: &MigrateArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let migrator = SchemaMigrator::of(settings)?;
    match typed.command {
        Some(MigrateCommand::List) => list(&migrator.status().await?, settings)?,
        Some(MigrateCommand::Validate) => validate(&migrator.status().await?, settings)?,
        None if typed.plan => {
            let sql = migrator.plan().await?;
            match settings.output.is_json() {
                true => settings.output.json(&json!({ "sql": sql }))?,
                false => settings.output.piece(&sql)?,
            }
        }
        None => {
            let version = migrator.migrate().await?;
            let words = || format!("{} has schema version {version}", settings.store);
            settings.output.answer(&json!({ "schema": version }), words)?;
        }
    }
    Ok(ExitCode::Good)
}

fn list(all: &[MigrationStatus], settings: &Settings) -> anyhow::Result<()> {
    settings.output.answer(&all, || {
        let heading = [right("version"), cell("name"), cell("state"), right("works with")];
        let mut table = Table::new(heading, "no migrations");
        for one in all {
            let works_with = format!("{} and newer", one.min_compatible);
            table.row([right(one.version), cell(&one.name), cell(state_name(one.state)), right(works_with)]);
        }
        table.render(settings.output.is_coloured())
    })
}

fn validate(all: &[MigrationStatus], settings: &Settings) -> anyhow::Result<()> {
    let is_bad = |state| !matches!(state, MigrationState::Applied | MigrationState::Newer);
    let Some(bad) = all.iter().find(|one| is_bad(one.state)) else {
        let version = all.last().map_or(0, |last| last.version);
        let words = || format!("ok: schema version {version}, every migration is applied and unchanged");
        return settings.output.answer(&json!({ "ok": true, "schema": version }), words);
    };
    let MigrationStatus { version, name, state, .. } = bad;
    let problem = anyhow::anyhow!("migration {version} ({name}) is {}", state_name(*state));
    Err(problem).hint(match state {
        MigrationState::Pending => "`longshore migrate --plan` shows its SQL, `longshore migrate` applies it",
        MigrationState::Incompatible => "this store needs a newer longshore",
        _ => "another build of longshore migrated this store: use that build",
    })
}

fn state_name(state: MigrationState) -> &'static str {
    match state {
        MigrationState::Applied => "applied",
        MigrationState::Pending => "pending",
        MigrationState::Changed => "changed",
        MigrationState::Newer => "newer",
        MigrationState::Incompatible => "incompatible",
    }
}
