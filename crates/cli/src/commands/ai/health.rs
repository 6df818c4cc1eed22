//! `ai health`: checks that providers are reachable, accept their keys, and that the models answer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use longshore::accounts::Ledger;
use longshore::{HumanDuration, ProfileName, TenantId};
use longshore_ai::{HealthCheck, Inference};
use serde::Serialize;
use tokio::time::Instant;

use crate::args::ai::HealthArgs;
use crate::commands::connect_with_ledger;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::inference::{flush, open_inference};
use crate::output::{Table, cell};
use crate::semaphore_backend;
use crate::settings::Settings;

/// The result of one profile's health check.
#[derive(Serialize)]
pub struct ProfileHealth {
    /// The profile's tenant.
    pub tenant: TenantId,
    /// The profile.
    pub profile: ProfileName,
    /// Whether the provider is reachable, accepts its key and has the model; with a call, whether
    /// the model answers.
    pub well: bool,
    /// The provider's answer, or the error.
    pub says: String,
}

/// Runs the command.
pub async fn run(typed: &HealthArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let connected = connect_with_ledger(settings).await?;
    let check = if typed.no_call { HealthCheck::NoCall } else { HealthCheck::Call };
    let HumanDuration(timeout) = typed.timeout;
    let all = check_all(&typed.profiles, check, timeout, &connected.ledger, settings).await?;
    for name in &typed.profiles {
        if !all.iter().any(|one| one.profile == *name) {
            return Err(anyhow!("there is no profile `{name}`"))
                .hint("`longshore profile list` shows the profiles; templates cannot be checked");
        }
    }
    settings.output.list(&all, || table(&all))?;
    let well = all.iter().all(|one| one.well);
    Ok(if well { ExitCode::Good } else { ExitCode::Failures })
}

/// Checks the provider of each profile in `wanted`, or of all if it is empty.
pub async fn check_all(
    wanted: &[ProfileName],
    check: HealthCheck,
    timeout: Duration,
    ledger: &Arc<dyn Ledger>,
    settings: &Settings,
) -> anyhow::Result<Vec<ProfileHealth>> {
    let pools = semaphore_backend::registry(settings).await?;
    let inference = open_inference(ledger, settings)?.with_pools(pools);
    let mut after = None;
    let mut all = Vec::new();
    loop {
        let page = ledger.profiles(&settings.scope(), None, after.as_deref(), 100).await?;
        for record in page.items {
            let selected = wanted.is_empty() || wanted.contains(&record.name);
            let template = record.body.get("template") == Some(&serde_json::Value::Bool(true));
            if selected && !template && !record.name.as_str().starts_with('.') {
                let until = Instant::now() + timeout;
                all.push(check_profile(&inference, record.tenant, record.name, check, until).await);
            }
        }
        after = page.next;
        if after.is_none() {
            flush(&inference).await;
            return Ok(all);
        }
    }
}

async fn check_profile(
    inference: &Inference,
    tenant: TenantId,
    profile: ProfileName,
    check: HealthCheck,
    until: Instant,
) -> ProfileHealth {
    let (well, says) = match inference.health(&tenant, Some(&profile), until, check).await {
        Ok(says) => (true, says),
        Err(error) => (false, error.to_string()),
    };
    ProfileHealth { tenant, profile, well, says }
}

fn table(all: &[ProfileHealth]) -> Table {
    let heading = [cell("tenant"), cell("profile"), cell("health"), cell("says")];
    let mut table = Table::new(heading, "no profiles; `longshore profile add` makes one");
    for one in all {
        let health = if one.well { "well" } else { "failed" };
        table.row([cell(&one.tenant), cell(&one.profile), cell(health), cell(&one.says)]);
    }
    table
}
