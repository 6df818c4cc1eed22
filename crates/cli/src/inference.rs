//! What every command that asks a model opens: the desk that asks, and the books it keeps.

use std::sync::Arc;

use longshore::ledger::Ledger;
use longshore::{Store, TenantId};
use longshore_ai::{Desk, Http};

use crate::commands::batch::crew::label;
use crate::settings::Settings;
use crate::vault;

/// A desk on the ledger, with the vault that the settings name.
pub fn desk(ledger: &Arc<dyn Ledger>, settings: &Settings) -> anyhow::Result<Desk> {
    let vault = Arc::new(vault::open(Arc::clone(ledger), settings)?);
    Ok(Desk::new(Arc::clone(ledger), vault, Http::new(), label()))
}

/// The tenant that asks: the only one, or the default one.
pub fn asking(settings: &Settings) -> TenantId {
    settings.tenant.clone().unwrap_or_default()
}

/// Keeps a desk's books and hears of changes, for as long as it is awaited.
pub async fn beside(desk: &Desk, store: &dyn Store) {
    let listening = async {
        // A feed that is away is asked again; meanwhile what is known expires by itself.
        while let Err(error) = desk.hear_of_changes(store).await {
            tracing::warn!(%error, "no word of changed profiles");
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::join!(desk.keep_books(), listening);
}

/// Writes what is left to be written in a desk's books, and gives back what its questions held.
pub async fn close_books(desk: &Desk) {
    tokio::select! {
        () = desk.books_kept() => {}
        () = desk.keep_books() => {}
    }
    desk.pools().settle().await;
}

/// Until a feed that was away is asked again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
