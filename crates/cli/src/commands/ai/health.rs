//! `ai health`: checks that providers are reachable and accept their keys.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::Ledger;
use longshore::{ProfileName, TenantId};
use longshore_ai::Inference;
use serde::Serialize;
use tokio::time::Instant;

use crate::commands::connect_with_ledger;
use crate::exit::ExitCode;
use crate::inference::open_inference;
use crate::output::{Table, cell};
use crate::settings::Settings;

/// Timeout of one health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of one profile's health check.
#[derive(Serialize)]
pub struct ProfileHealth {
    /// The profile's tenant.
    pub tenant: TenantId,
    /// The profile.
    pub profile: ProfileName,
    /// Whether the provider is reachable and accepts its key.
    pub well: bool,
    /// The provider's answer, or the error.
    pub says: String,
}

/// Runs the command.
pub async fn run(wanted: &[ProfileName], settings: &Settings) -> anyhow::Result<ExitCode> {
    let connected = connect_with_ledger(settings).await?;
    let all = check_all(wanted, &connected.ledger, settings).await?;
    settings.output.list(&all, || table(&all))?;
    let well = all.iter().all(|one| one.well);
    Ok(if well { ExitCode::Good } else { ExitCode::Failures })
}

/// Checks the provider of each profile in `wanted`, or of all if it is empty.
pub async fn check_all(
    wanted: &[ProfileName],
    ledger: &Arc<dyn Ledger>,
    settings: &Settings,
) -> anyhow::Result<Vec<ProfileHealth>> {
    let inference = open_inference(ledger, settings)?;
    let mut after = None;
    let mut all = Vec::new();
    loop {
        let page = ledger.profiles(&settings.scope(), None, after.as_deref(), 100).await?;
        for record in page.items {
            let selected = wanted.is_empty() || wanted.contains(&record.name);
            let template = record.body.get("template") == Some(&serde_json::Value::Bool(true));
            if selected && !template && !record.name.as_str().starts_with('.') {
                all.push(check_profile(&inference, record.tenant, record.name).await);
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

async fn check_profile(inference: &Inference, tenant: TenantId, profile: ProfileName) -> ProfileHealth {
    let until = Instant::now() + HEALTH_TIMEOUT;
    let (well, says) = match inference.health(&tenant, Some(&profile), until).await {
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
