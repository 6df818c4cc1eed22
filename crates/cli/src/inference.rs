//! Opens inference, which calls models, for every command that needs it, and runs its background
//! tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore::accounts::Ledger;
use longshore::{Store, TenantId};
use longshore_ai::{Http, Inference};

use crate::alert_sinks::AlertSinks;
use crate::commands::batch::handlers::label;
use crate::keyring;
use crate::settings::Settings;

/// Opens inference on the ledger, with the vault of the settings.
pub fn open_inference(ledger: &Arc<dyn Ledger>, settings: &Settings) -> anyhow::Result<Inference> {
    let vault = Arc::new(keyring::open(Arc::clone(ledger), settings)?);
    let inference = Inference::new(Arc::clone(ledger), vault, Http::new(), label());
    let inference = inference.with_alert_sink(AlertSinks::open(&settings.alerts)?);
    Ok(inference.with_prompt_quotes(settings.ai.quote_prompts))
}

/// The tenant that makes requests: the settings' only one, or the default one.
pub fn caller_tenant(settings: &Settings) -> TenantId {
    settings.tenant.clone().unwrap_or_default()
}

/// Records calls and follows changes of profiles, while awaited.
pub async fn run_background(inference: &Inference, store: &dyn Store) {
    let listening = async {
        // If the change feed is unavailable it is polled again; meanwhile cached profiles expire by
        // themselves. An outage is one line of the log: a feed that worked for a while fails anew.
        let (mut began, mut failing) = (Instant::now(), false);
        while let Err(error) = inference.watch_changes(store).await {
            match failing && began.elapsed() < OUTAGE_LOG_INTERVAL {
                true => tracing::debug!(%error, "still cannot follow changes of profiles"),
                false => tracing::warn!(%error, "cannot follow changes of profiles"),
            }
            failing = true;
            tokio::time::sleep(RETRY_DELAY).await;
            began = Instant::now();
        }
    };
    tokio::join!(inference.run_journal(), inference.run_alerts(), listening);
}

/// Writes the remaining call records, and releases the permits of requests.
pub async fn flush(inference: &Inference) {
    tokio::select! {
        () = inference.flush_journal() => {}
        () = inference.run_journal() => {}
    }
    inference.flush_alerts().await;
    inference.pools().flush().await;
}

/// The delay before a change feed that failed is polled again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// A feed that fails again within this time is still in the same outage.
const OUTAGE_LOG_INTERVAL: Duration = Duration::from_secs(60);
