//! The register: from a tenant and a profile's name to somebody who can be asked.
//!
//! Owns what is remembered of profiles, keys and endpoints, and for how long. A profile is looked up
//! in its tenant and nowhere else, on every use: another tenant's does not exist. Only templates may
//! come from elsewhere, and a key belongs to whoever wrote the document that names it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use longshore::ledger::{Ledger, ProfileRecord};
use longshore::{Error, ProfileName, Scope, TenantId};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::line::{Line, LineName, Lines};
use super::sheet::{Bound, Sheet, TENANT_SHEET, TenantSheet};
use super::whole::SheetError;
use crate::ask::{Again, AskError, Code, Provider};
use crate::batches::{self, BatchProvider};
use crate::chunk::Need;
use crate::http::Http;
use crate::profile::Profile;
use crate::providers;
use crate::vault::{KeyRef, Vault};

/// How long a profile is believed to be what it was, should no notice of a change come.
const BELIEVED: Duration = Duration::from_secs(30);

/// Profiles, ready to be asked.
pub(super) struct Register {
    ledger: Arc<dyn Ledger>,
    vault: Arc<Vault>,
    http: Http,
    lines: Lines,
    known: Mutex<Known>,
}

/// What is remembered.
#[derive(Default)]
struct Known {
    entries: HashMap<(TenantId, ProfileName), (Arc<Entry>, Instant)>,
    /// Those that are in no ledger, by their text.
    written: HashMap<(TenantId, String), (Arc<Entry>, Instant)>,
    tenants: HashMap<TenantId, (Arc<Owner>, Instant)>,
    /// How many questions of a profile may be out. They outlive the entries: whoever is out still is
    /// when the profile is read again. Another bound makes another room.
    rooms: HashMap<(TenantId, ProfileName, u32), Arc<Semaphore>>,
    stand_ins: HashMap<ProfileName, Arc<dyn Provider>>,
}

/// What holds for all profiles of a tenant.
pub(super) struct Owner {
    /// Its settings.
    pub(super) sheet: TenantSheet,
    /// What a question takes of its limits.
    pub(super) needs: Vec<Need>,
    /// Its month is bounded: nothing may be asked before that was looked at.
    pub(super) has_budget: bool,
    /// An operator has suspended it: it asks nobody.
    suspended: bool,
}

/// Somebody who can be asked.
pub(super) struct Entry {
    /// Its name.
    pub(super) name: ProfileName,
    /// What the profile says.
    pub(super) profile: Profile,
    /// Who answers.
    pub(super) provider: Arc<dyn Provider>,
    /// Who answers many at once, if the provider does.
    pub(super) batches: Option<Arc<dyn BatchProvider>>,
    /// How those who share endpoint, key and limits fare.
    pub(super) line: Line,
    /// What a question takes of its limits, and of those it shares with others.
    pub(super) needs: Vec<Need>,
    /// How many questions of this profile may be out.
    pub(super) room: Option<Arc<Semaphore>>,
}

impl Register {
    pub(super) fn new(ledger: Arc<dyn Ledger>, vault: Arc<Vault>, http: Http) -> Self {
        Self { ledger, vault, http, lines: Lines::default(), known: Mutex::default() }
    }

    /// Forgets profiles and keys: the next use reads them anew.
    pub(super) fn clear(&self) {
        self.vault.clear();
        let mut known = self.known();
        known.entries.clear();
        known.written.clear();
        known.tenants.clear();
    }

    /// A tenant's profile; without a name, the one it uses by default.
    pub(super) async fn find(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
    ) -> Result<Arc<Entry>, AskError> {
        let name = match name {
            Some(name) => name.clone(),
            None => self.default_of(tenant).await?,
        };
        let key = (tenant.clone(), name);
        if let Some((entry, until)) = self.known().entries.get(&key)
            && Instant::now() < *until
        {
            return Ok(Arc::clone(entry));
        }
        // In a box: whoever finds it known carries no room for the reading.
        Box::pin(self.found_anew(key)).await
    }

    async fn found_anew(&self, key: (TenantId, ProfileName)) -> Result<Arc<Entry>, AskError> {
        let now = Instant::now();
        let (tenant, name) = &key;
        self.may_ask(tenant).await?;
        let record = self.record(tenant, name).await?;
        let entry = Arc::new(self.open(record).await?);
        self.known().entries.insert(key, (Arc::clone(&entry), now + BELIEVED));
        Ok(entry)
    }

    /// A profile that is in no ledger. It is remembered as those that are, by all that it says.
    pub(super) async fn written(
        &self,
        tenant: &TenantId,
        profile: &Profile,
    ) -> Result<Arc<Entry>, AskError> {
        let key = (tenant.clone(), serde_json::to_string(profile).map_err(internal)?);
        let now = Instant::now();
        if let Some((entry, until)) = self.known().written.get(&key)
            && now < *until
        {
            return Ok(Arc::clone(entry));
        }
        self.may_ask(tenant).await?;
        let name = ProfileName::new(&profile.name).map_err(internal)?;
        let entry = Arc::new(self.entry(tenant, name, profile.clone(), tenant).await?);
        let mut known = self.known();
        known.written.retain(|_, (_, until)| now < *until);
        known.written.insert(key, (Arc::clone(&entry), now + BELIEVED));
        drop(known);
        Ok(entry)
    }

    /// Who answers for the profiles of a name, whatever they say.
    pub(super) fn stand_in(&self, profile: ProfileName, provider: Arc<dyn Provider>) {
        self.known().stand_ins.insert(profile, provider);
        self.clear();
    }

    /// Says no for a tenant that is suspended. Entries are made for no such, so whoever has one need
    /// not ask.
    pub(super) async fn may_ask(&self, tenant: &TenantId) -> Result<(), AskError> {
        if !self.owner(tenant).await?.suspended {
            return Ok(());
        }
        Err(AskError::suspended(format!("tenant `{tenant}` is suspended")))
    }

    /// What holds for all profiles of a tenant.
    pub(super) async fn owner(&self, tenant: &TenantId) -> Result<Arc<Owner>, AskError> {
        if let Some((owner, until)) = self.known().tenants.get(tenant)
            && Instant::now() < *until
        {
            return Ok(Arc::clone(owner));
        }
        Box::pin(self.owner_anew(tenant)).await
    }

    async fn owner_anew(&self, tenant: &TenantId) -> Result<Arc<Owner>, AskError> {
        let now = Instant::now();
        let name = ProfileName::new(TENANT_SHEET).map_err(internal)?;
        let sheet = match self.ledger.profile(&scope(tenant), tenant, &name).await {
            Ok(record) => TenantSheet::read(&record.body).map_err(internal)?,
            Err(Error::NotFound { .. }) => TenantSheet::default(),
            Err(error) => return Err(away(&error)),
        };
        let month = self.ledger.budget(&scope(tenant), tenant).await;
        let has_budget = month.map_err(|error| away(&error))?.budget.is_some();
        let suspended = self.ledger.is_suspended(&scope(tenant), tenant).await;
        let suspended = suspended.map_err(|error| away(&error))?;
        let needs = Need::of_tenant(tenant, &sheet.limits);
        let owner = Arc::new(Owner { sheet, needs, has_budget, suspended });
        self.known().tenants.insert(tenant.clone(), (Arc::clone(&owner), now + BELIEVED));
        Ok(owner)
    }

    async fn default_of(&self, tenant: &TenantId) -> Result<ProfileName, AskError> {
        let owner = self.owner(tenant).await?;
        owner.sheet.default.clone().ok_or_else(|| {
            let message = format!("tenant `{tenant}` has no default profile, and none was named");
            AskError::new(Code::ProfileNotFound, message)
        })
    }

    async fn record(
        &self,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<ProfileRecord, AskError> {
        match self.ledger.profile(&scope(tenant), tenant, name).await {
            // A template is there to be extended, not to be asked.
            Ok(record) if Sheet::is_template(&record.body) => Err(unknown(name)),
            Ok(record) if record.suspended => {
                let message = format!("profile `{name}` is suspended");
                Err(AskError::new(Code::ProfileDisabled, message))
            }
            Ok(record) => Ok(record),
            Err(Error::NotFound { .. }) => Err(unknown(name)),
            Err(error) => Err(away(&error)),
        }
    }

    /// Reads a profile with its templates, and makes it one that can be asked.
    async fn open(&self, record: ProfileRecord) -> Result<Entry, AskError> {
        let (owner, name) = (record.tenant.clone(), record.name.clone());
        let sheet = Sheet::read(&*self.ledger, record).await.map_err(|error| match error {
            SheetError::Ledger(error) => away(&error),
            error => internal(error),
        })?;
        let profile = sheet.profile(name.as_str()).map_err(|why| {
            AskError::new(Code::Internal, format!("profile `{name}` cannot be read: {why}"))
        })?;
        let bounds = sheet.bounds().map_err(internal)?;
        let need = |bound: &Bound| Need::of_profile(&bound.tenant, &bound.profile, &bound.limits);
        let needs = bounds.iter().flat_map(need).collect();
        let key_owner = sheet.key_owner().unwrap_or(&owner);
        let entry = self.entry(&owner, name, profile, key_owner).await?;
        Ok(Entry { needs, ..entry })
    }

    /// Fetches a profile's key, which is `owner`'s, and makes its provider.
    async fn entry(
        &self,
        tenant: &TenantId,
        name: ProfileName,
        profile: Profile,
        owner: &TenantId,
    ) -> Result<Entry, AskError> {
        let key = self.key(&name, &profile, owner).await?;
        let many = batches::open(&profile, key.clone(), &self.http).ok();
        let standing_in = self.known().stand_ins.get(&name).map(Arc::clone);
        let provider = standing_in.map_or_else(|| providers::open(&profile, key, &self.http), Ok);
        let provider = provider.map_err(|error| {
            AskError::new(Code::Internal, format!("profile `{name}` does not work: {error}"))
        })?;
        let line = self.lines.find(&line_name(&profile, owner));
        let room = profile.limits.in_flight.map(|most| self.room(tenant, &name, most));
        let needs = Need::of_profile(tenant, &name, &profile.limits);
        Ok(Entry { name, profile, provider, batches: many, line, needs, room })
    }

    fn room(&self, tenant: &TenantId, name: &ProfileName, most: u32) -> Arc<Semaphore> {
        let key = (tenant.clone(), name.clone(), most.max(1));
        let room = || Arc::new(Semaphore::new(most.max(1) as usize));
        Arc::clone(self.known().rooms.entry(key).or_insert_with(room))
    }

    async fn key(
        &self,
        name: &ProfileName,
        profile: &Profile,
        owner: &TenantId,
    ) -> Result<Option<SecretString>, AskError> {
        let Some(key) = &profile.key else { return Ok(None) };
        let refused = |error: &dyn std::fmt::Display| {
            AskError::new(Code::ProviderAuth, format!("the key of profile `{name}`: {error}"))
        };
        let key: KeyRef = key.parse().map_err(|error| refused(&error))?;
        let opened = self.vault.open(&scope(owner), owner, &key).await;
        opened.map(Some).map_err(|error| refused(&error))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who shares a line with whom. A simulated provider is nobody else's.
fn line_name(profile: &Profile, owner: &TenantId) -> LineName {
    let simulated = providers::capabilities(profile.provider).simulated;
    let end = profile.endpoint.as_deref().unwrap_or_default();
    let end = if simulated { &profile.name } else { end };
    let key = profile.key.as_deref().unwrap_or_default();
    LineName {
        endpoint: format!("{} {end}", profile.provider),
        key: format!("{owner} {key}"),
        model: profile.model.clone(),
    }
}

fn scope(tenant: &TenantId) -> Scope {
    Scope::Tenant(tenant.clone())
}

fn unknown(name: &ProfileName) -> AskError {
    AskError::new(Code::ProfileNotFound, format!("there is no profile `{name}`"))
}

fn internal(error: impl std::fmt::Display) -> AskError {
    AskError::new(Code::Internal, error.to_string())
}

/// The store could not say.
pub(super) fn away(error: &Error) -> AskError {
    let again = if error.is_retryable() { Again::NotSent } else { Again::Never };
    AskError {
        again,
        ..AskError::new(Code::Internal, format!("the ledger cannot be read: {error}"))
    }
}
