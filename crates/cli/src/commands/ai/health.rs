//! `ai health`: whether providers can be reached and accept their keys.

use std::sync::Arc;
use std::time::Duration;

use longshore::ledger::Ledger;
use longshore::{ProfileName, TenantId};
use longshore_ai::{Desk, TENANT_SHEET};
use serde::Serialize;
use tokio::time::Instant;

use crate::commands::connect_both;
use crate::exit::ExitCode;
use crate::inference::desk;
use crate::output::{Table, cell};
use crate::settings::Settings;

/// How long a provider may take to say that it is well.
const PATIENCE: Duration = Duration::from_secs(10);

/// How one profile's provider is.
#[derive(Serialize)]
pub struct Health {
    /// Whose profile.
    pub tenant: TenantId,
    /// Which.
    pub profile: ProfileName,
    /// Whether it can be reached and accepts its key.
    pub well: bool,
    /// What it says.
    pub says: String,
}

/// Runs the command.
pub async fn run(wanted: &[ProfileName], settings: &Settings) -> anyhow::Result<ExitCode> {
    let connected = connect_both(settings).await?;
    let all = of_all(wanted, &connected.ledger, settings).await?;
    settings.output.list(&all, || table(&all))?;
    let well = all.iter().all(|one| one.well);
    Ok(if well { ExitCode::Good } else { ExitCode::Failures })
}

/// Asks the provider of each profile that is wanted; none wanted means all.
pub async fn of_all(
    wanted: &[ProfileName],
    ledger: &Arc<dyn Ledger>,
    settings: &Settings,
) -> anyhow::Result<Vec<Health>> {
    let desk = desk(ledger, settings)?;
    let mut after = None;
    let mut all = Vec::new();
    loop {
        let page = ledger.profiles(&settings.scope(), after.as_deref(), 100).await?;
        for record in page.items {
            let asked = wanted.is_empty() || wanted.contains(&record.name);
            let template = record.body.get("template") == Some(&serde_json::Value::Bool(true));
            if asked && !template && record.name.as_str() != TENANT_SHEET {
                all.push(look(&desk, record.tenant, record.name).await);
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

async fn look(desk: &Desk, tenant: TenantId, profile: ProfileName) -> Health {
    let until = Instant::now() + PATIENCE;
    let (well, says) = match desk.health(&tenant, Some(&profile), until).await {
        Ok(says) => (true, says),
        Err(error) => (false, error.to_string()),
    };
    Health { tenant, profile, well, says }
}

fn table(all: &[Health]) -> Table {
    let heading = [cell("tenant"), cell("profile"), cell("health"), cell("says")];
    let mut table = Table::new(heading, "no profiles; `longshore profile add` makes one");
    for one in all {
        let health = if one.well { "well" } else { "failed" };
        table.row([cell(&one.tenant), cell(&one.profile), cell(health), cell(&one.says)]);
    }
    table
}
