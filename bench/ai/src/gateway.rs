//! Our gateway as users run it: a SQLite ledger, limits of the tenant and of each profile, prices, and one
//! usage row for each call.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use longshore::accounts::{Ledger, PutProfile};
use longshore::{ProfileName, Scope, Store, TenantId};
use longshore_ai::gateway::{Gateway, SingleTenant};
use longshore_ai::{Http, Inference, TENANT_SETTINGS, Vault};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

use crate::child::{input_ended, listen};
use crate::upstream;

/// The token of the clients.
pub(crate) const TOKEN: &str = "bench-token-0123456789";

/// Opens a desk on a new store.
pub(crate) struct House {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) desk: Inference,
}

/// Opens a store with profiles.
pub(crate) async fn open(folder: &Path, profiles: &[(&str, Value)]) -> Result<House> {
    std::fs::create_dir_all(folder)?;
    let store = SqliteStore::open(&folder.join("bench.db"), SqliteOptions::default())?;
    let store = Arc::new(store);
    for (name, body) in profiles {
        let put = PutProfile {
            tenant: TenantId::default(),
            name: ProfileName::new(*name)?,
            body: Some(body.clone()),
            suspended: None,
            expected: None,
        };
        let ledger: &dyn longshore::Ledger = &*store;
        ledger.put_profile(&Scope::All, put).await?;
    }
    let ledger: Arc<dyn Ledger> = Arc::clone(&store) as _;
    let vault = Arc::new(Vault::new(Arc::clone(&store) as _, None));
    let desk = Inference::new(Arc::clone(&ledger), vault, Http::new(), "bench".to_owned());
    Ok(House { store, ledger, desk })
}

/// Limits that are checked, but never reached.
pub(crate) fn limits() -> Value {
    json!({ "requests": 60e6, "tokens": 600e9 })
}

/// Serves until the parent process ends.
pub(crate) async fn run(at: &str, folder: &Path) -> Result<()> {
    let profile = |delay| {
        json!({
            "provider": "openai", "model": "fake-1", "endpoint": format!("{at}{}", upstream::base(delay)),
            "prices": { "input": 1.25, "output": 10 }, "limits": limits(), "max_tokens": 1000,
        })
    };
    let profiles = [
        ("instant", profile(0)),
        ("slow", profile(50)),
        ("crowded", profile(2000)),
        (TENANT_SETTINGS, json!({ "limits": limits() })),
    ];
    let House { store, desk, .. } = open(folder, &profiles).await?;
    let guests = SingleTenant { tenant: TenantId::default(), token: Some(TOKEN.into()) };
    let gateway = Gateway::new(Arc::new(desk.clone()), Arc::new(guests));
    let listener = listen().await?;
    tokio::select! {
        () = gateway.serve(listener, input_ended()) => Ok(()),
        ended = desk.watch_changes(&*store) => Ok(ended?),
        () = desk.run_journal() => Ok(()),
        () = desk.run_heartbeat(&*store) => Ok(()),
    }
}
