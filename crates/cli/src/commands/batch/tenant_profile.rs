//! The tenant's profile that a batch names (`profile = "@NAME"`). It is found before the first row:
//! in the batch's store, or else in the settings' store, where `profile add` stores it if the batch
//! is in its rows' own database.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use longshore::accounts::Ledger;
use longshore::{Error, ProfileName, Scope, Store, TenantId};
use longshore_ai::{Profile, ProfileDocument};
use longshore_batch::Definition;
use longshore_batch::definition::{Ai, AskRoute};
use longshore_batch::file::{FileError, LoadedBatchFile};

use super::context::{BatchContext, file_error};
use crate::error::{WithHint, did_you_mean, hinted};
use crate::inference::open_inference;
use crate::settings::Settings;
use crate::store::{self, StoreUrl};

/// The store that has a batch's profile, if it is another one than the batch's.
pub struct SeparateLedger {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its ledger.
    pub ledger: Arc<dyn Ledger>,
}

/// How many names are searched for a similar one.
const MAX_NAMES: u32 = 1000;

/// Checks that the batch's profile exists and that its key opens. Returns its store if that is not
/// the batch's.
pub async fn find(
    definition: &Definition,
    context: &BatchContext,
    settings: &Settings,
) -> anyhow::Result<Option<SeparateLedger>> {
    let mut separate = None;
    for (ai, name) in named(definition) {
        separate = find_one(definition, ai, name, context, settings).await?.or(separate);
    }
    Ok(separate)
}

async fn find_one(
    definition: &Definition,
    ai: &Ai,
    name: &ProfileName,
    context: &BatchContext,
    settings: &Settings,
) -> anyhow::Result<Option<SeparateLedger>> {
    let tenant = &definition.tenant;
    if look_up(&context.ledger, tenant, name).await?.is_some() {
        return open_key(&context.ledger, ai, tenant, name, settings).await.map(|()| None);
    }
    let Some(other) = other_store(&context.url, settings) else {
        return Err(not_found_error(tenant, name, &[(&context.url, &context.ledger)]).await);
    };
    let (store, ledger) = store::open_with_ledger_at(other, settings).await?;
    if look_up(&ledger, tenant, name).await?.is_none() {
        let searched = [(&context.url, &context.ledger), (other, &ledger)];
        return Err(not_found_error(tenant, name, &searched).await);
    }
    if ai.provider_batch.is_some() || ai.through == AskRoute::Queue {
        return Err(in_other_store(name, other, &context.url));
    }
    open_key(&ledger, ai, tenant, name, settings).await?;
    Ok(Some(SeparateLedger { store, ledger }))
}

/// Checks that the batch's own store has the profile: other processes, which know no other store,
/// run the rows.
pub async fn require_here(
    definition: &Definition,
    context: &BatchContext,
    settings: &Settings,
) -> anyhow::Result<()> {
    for (_, name) in named(definition) {
        require_one(definition, name, context, settings).await?;
    }
    Ok(())
}

async fn require_one(
    definition: &Definition,
    name: &ProfileName,
    context: &BatchContext,
    settings: &Settings,
) -> anyhow::Result<()> {
    let tenant = &definition.tenant;
    if look_up(&context.ledger, tenant, name).await?.is_some() {
        return Ok(());
    }
    if let Some(other) = other_store(&context.url, settings) {
        let (_, ledger) = store::open_with_ledger_at(other, settings).await?;
        if look_up(&ledger, tenant, name).await?.is_some() {
            return Err(in_other_store(name, other, &context.url));
        }
    }
    Err(not_found_error(tenant, name, &[(&context.url, &context.ledger)]).await)
}

/// The profiles, for a check of the batch file and for an estimate: for each question of a row that
/// names one. No store is changed, and no key is opened. `None` where a store cannot be read without
/// being changed.
pub async fn read(
    loaded: &LoadedBatchFile,
    url: &StoreUrl,
    settings: &Settings,
) -> anyhow::Result<BTreeMap<ProfileName, Profile>> {
    let mut profiles = BTreeMap::new();
    for (_, name) in named(&loaded.definition) {
        if let Some(profile) = read_one(loaded, name, url, settings).await? {
            profiles.insert(name.clone(), profile);
        }
    }
    Ok(profiles)
}

async fn read_one(
    loaded: &LoadedBatchFile,
    name: &ProfileName,
    url: &StoreUrl,
    settings: &Settings,
) -> anyhow::Result<Option<Profile>> {
    let definition = &loaded.definition;
    let settings = Settings { inspect_only: true, ..settings.clone() };
    let (mut searched, tenant) = (Vec::new(), &definition.tenant);
    for url in [Some(url), other_store(url, &settings)].into_iter().flatten() {
        if matches!(url, StoreUrl::Sqlite(path) if !path.exists()) {
            continue;
        }
        let ledger = match store::open_with_ledger_at(url, &settings).await {
            Ok((_, ledger)) => ledger,
            // A database of rows that holds no store yet holds no profiles.
            Err(error) if matches!(error.downcast_ref(), Some(Error::Schema { found: 0, .. })) => continue,
            Err(error) => {
                tracing::debug!("cannot look for profiles in {url}: {error:#}");
                return Ok(None);
            }
        };
        if let Some(profile) = look_up(&ledger, tenant, name).await? {
            return Ok(Some(profile));
        }
        searched.push((url, ledger));
    }
    let searched: Vec<_> = searched.iter().map(|(url, ledger)| (*url, ledger)).collect();
    let (message, hint) = not_found(tenant, name, &searched).await;
    let error = match loaded.source_map.find("ai.profile") {
        Some(location) => location.error(message),
        None => FileError::new(&definition.source, message),
    };
    Err(file_error(error.hint(hint)))
}

fn named(definition: &Definition) -> Vec<(&Ai, &ProfileName)> {
    definition.questions().filter_map(|ai| Some((ai, ai.profile.name()?))).collect()
}

/// The settings' store, if the batch is in another one.
fn other_store<'a>(own: &StoreUrl, settings: &'a Settings) -> Option<&'a StoreUrl> {
    match &settings.store {
        other if other == own => None,
        StoreUrl::Sqlite(path) if !path.exists() => None,
        StoreUrl::Memory => None,
        other => Some(other),
    }
}

/// A tenant's profile with its templates; `None` if this ledger does not have it.
async fn look_up(
    ledger: &Arc<dyn Ledger>,
    tenant: &TenantId,
    name: &ProfileName,
) -> anyhow::Result<Option<Profile>> {
    let record = match ledger.profile(&Scope::Tenant(tenant.clone()), tenant, name).await {
        Ok(record) if ProfileDocument::is_template(&record.body) => return Ok(None),
        Ok(record) => record,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if record.suspended {
        return Err(anyhow!("profile `{name}` is suspended"))
            .hint(format!("`longshore profile resume {name}` opens it again"));
    }
    let profile = ProfileDocument::resolve(&**ledger, record).await?.profile(name.as_str());
    let profile = profile.map_err(|why| anyhow!("profile `{name}` cannot be read: {why}"))?;
    Ok(Some(profile))
}

/// Opens the key, if this process makes the calls.
async fn open_key(
    ledger: &Arc<dyn Ledger>,
    ai: &Ai,
    tenant: &TenantId,
    name: &ProfileName,
    settings: &Settings,
) -> anyhow::Result<()> {
    if ai.through == AskRoute::Queue {
        return Ok(());
    }
    let opened = open_inference(ledger, settings)?.profile(tenant, Some(name)).await;
    opened.map(drop).hint(format!("`longshore profile test {name}` tests it"))
}

fn in_other_store(name: &ProfileName, its: &StoreUrl, batch: &StoreUrl) -> anyhow::Error {
    let error =
        anyhow!("profile `{name}` is in {its}, and the batch in {batch}, where its rows are asked for");
    hinted(error, format!("run the batch in the profile's store: --store {its}"))
}

/// The ledgers in which a profile was searched.
type Searched<'a> = [(&'a StoreUrl, &'a Arc<dyn Ledger>)];

async fn not_found_error(tenant: &TenantId, name: &ProfileName, searched: &Searched<'_>) -> anyhow::Error {
    let (message, hint) = not_found(tenant, name, searched).await;
    hinted(anyhow!(message), hint)
}

/// The error for a profile that does not exist, and its hint.
async fn not_found(tenant: &TenantId, name: &ProfileName, searched: &Searched<'_>) -> (String, String) {
    let mut known: Vec<ProfileName> = Vec::new();
    for (_, ledger) in searched {
        let own = Scope::Tenant(tenant.clone());
        let page = ledger.profiles(&own, None, None, MAX_NAMES).await.map(|page| page.items);
        let records = page.unwrap_or_default();
        if records.iter().any(|record| record.name == *name && record.body["template"] == true) {
            let message =
                format!("profile `{name}` of tenant `{tenant}` is a template, which cannot be asked");
            return (message, format!("`longshore profile add NAME --extends {name}` makes a profile of it"));
        }
        known.extend(records.into_iter().map(|record| record.name));
    }
    let hint = match did_you_mean(name.as_str(), known.iter().map(ProfileName::as_str)) {
        Some(suggestion) => format!("did you mean `@{suggestion}`?"),
        None => {
            let stores = searched.iter().map(|(url, _)| url.to_string()).collect::<Vec<_>>().join(" and ");
            let stores = if stores.is_empty() { "no store exists yet".to_owned() } else { stores };
            format!("`longshore profile add {name} …` adds one (searched: {stores})")
        }
    };
    (format!("tenant `{tenant}` has no profile `{name}`"), hint)
}
