//! Checks that AI providers are reachable and accept their keys. No key is shown.

use std::sync::Arc;

use longshore::accounts::Ledger;

use super::check_result::CheckResult;
use crate::commands::ai::health::{self, ProfileHealth};
use crate::error;
use crate::settings::Settings;

/// Checks every profile's provider.
pub(super) async fn check(ledger: &Arc<dyn Ledger>, settings: &Settings) -> Vec<CheckResult> {
    match health::check_all(&[], ledger, settings).await {
        Err(problem) => {
            let mend = error::hint(&problem).unwrap_or_else(|| "docs/ai-profiles.md".to_owned());
            vec![CheckResult::wrong("providers", format!("{problem:#}"), mend)]
        }
        Ok(all) => all.into_iter().map(result).collect(),
    }
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
