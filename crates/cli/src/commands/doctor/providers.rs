//! Whether AI providers can be reached and accept their keys. No key is shown.

use std::sync::Arc;

use longshore::ledger::Ledger;

use super::finding::Finding;
use crate::commands::ai::health::{self, Health};
use crate::error;
use crate::settings::Settings;

/// Asks every profile's provider.
pub(super) async fn look(ledger: &Arc<dyn Ledger>, settings: &Settings) -> Vec<Finding> {
    match health::of_all(&[], ledger, settings).await {
        Err(problem) => {
            let mend = error::hint(&problem).unwrap_or_else(|| "docs/ai-profiles.md".to_owned());
            vec![Finding::wrong("providers", format!("{problem:#}"), mend)]
        }
        Ok(all) => all.into_iter().map(finding).collect(),
    }
}

fn finding(one: Health) -> Finding {
    let says = format!("{} of {}: {}", one.profile, one.tenant, one.says);
    if one.well {
        return Finding::good("providers", says);
    }
    let mend = format!(
        "`longshore profile show {}` says who is asked; if it refuses the key, `longshore key rotate`",
        one.profile
    );
    Finding::wrong("providers", says, mend)
}
