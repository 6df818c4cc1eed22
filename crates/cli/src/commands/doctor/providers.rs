//! Checks that AI providers are reachable, accept their keys and have the models, free of charge. No
//! key is shown.

use std::sync::Arc;
use std::time::Duration;

use longshore::Scope;
use longshore::accounts::Ledger;
use longshore_ai::{HealthCheck, PriceTable};

use super::check_result::CheckResult;
use crate::commands::ai::health::{self, ProfileHealth};
use crate::commands::now;
use crate::commands::price::old_table;
use crate::error;
use crate::settings::Settings;

/// Timeout of one provider's check.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Checks every profile's provider.
pub(super) async fn check(ledger: &Arc<dyn Ledger>, settings: &Settings) -> Vec<CheckResult> {
    match health::check_all(&[], HealthCheck::NoCall, TIMEOUT, ledger, settings).await {
        Err(problem) => {
            let mend = error::hint(&problem).unwrap_or_else(|| "docs/ai-profiles.md".to_owned());
            vec![CheckResult::wrong("providers", format!("{problem:#}"), mend)]
        }
        Ok(all) => all.into_iter().map(result).collect(),
    }
}

/// Checks the age of the price table, if a profile exists.
pub(super) async fn prices(ledger: &dyn Ledger) -> Option<CheckResult> {
    let profiles = ledger.profiles(&Scope::All, None, None, 1).await.ok()?;
    let table = PriceTable::load(ledger).await.ok().filter(|_| !profiles.items.is_empty())?;
    Some(match old_table(&table, now()) {
        Some(warning) => CheckResult::doubtful("prices", warning, "docs/ai-profiles.md#prices says how"),
        None => CheckResult::good("prices", format!("the price table is of {}", table.date)),
    })
}

fn result(one: ProfileHealth) -> CheckResult {
    let says = format!("{} of {}: {}", one.profile, one.tenant, one.says);
    if one.well {
        return CheckResult::good("providers", says);
    }
    let mend = format!(
        "`longshore profile show {}` shows the provider; if it rejects the key, `longshore key rotate`",
        one.profile
    );
    CheckResult::wrong("providers", says, mend)
}
