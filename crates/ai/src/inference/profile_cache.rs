//! Cache of resolved profiles: from a tenant and a profile's name to a provider that can be asked.
//!
//! Owns which profiles, keys and endpoints are cached, and for how long. Every use looks a profile
//! up in its own tenant only; profiles of other tenants do not exist for it. Only templates may
//! come from the default tenant, and a key belongs to the owner of the document that names it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use longshore::accounts::{BudgetDecision, Ledger, ProfileRecord};
use longshore::{Error, ProfileName, Scope, TenantId};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::profile_document::{ProfileDocument, ScopedLimits, TENANT_SETTINGS, TenantSettings};
use super::profile_resolution::ProfileDocumentError;
use super::upstream_health::{UpstreamKey, Upstreams};
use crate::batches::{self, BatchProvider};
use crate::http::{Http, HttpOptions};
use crate::model_api::{AskError, Code, Provider, Retryability};
use crate::pricing::PriceTable;
use crate::profile::Profile;
use crate::providers;
use crate::resilience::{BucketCharge, WaitingTenant};
use crate::vault::{KeyRef, Vault};

/// How long a resolved profile is used if no change notification arrives.
const CACHE_TTL: Duration = Duration::from_secs(30);

/// How long an HTTP client with a proxy or certificates of its own is kept after its last use.
const CLIENT_TTL: Duration = Duration::from_secs(600);

/// Resolves profiles and caches the result.
pub(super) struct ProfileCache {
    ledger: Arc<dyn Ledger>,
    vault: Arc<Vault>,
    http: Http,
    pub(super) upstreams: Upstreams,
    cached: Mutex<CachedProfiles>,
}

/// The cached values.
#[derive(Default)]
struct CachedProfiles {
    entries: HashMap<(TenantId, ProfileName), (Arc<ResolvedProfile>, Instant)>,
    /// Inline profiles, by tenant and JSON text.
    inline: HashMap<(TenantId, String), (Arc<ResolvedProfile>, Instant)>,
    tenants: HashMap<TenantId, (Arc<TenantContext>, Instant)>,
    /// Concurrency limits of profiles. They outlive the cached profile, because its calls are still
    /// in flight when it is read again. A changed limit gets a new semaphore.
    concurrency_limits: HashMap<(TenantId, ProfileName, u32), Arc<Semaphore>>,
    provider_overrides: HashMap<ProfileName, Arc<dyn Provider>>,
    /// HTTP clients of profiles with a proxy or certificates of their own, and when each was last
    /// used. They outlive the cached profile, which would otherwise lose its connections.
    clients: Vec<(HttpOptions, Http, Instant)>,
}

/// The owners of a profile's keys: each key is in its owner's vault.
#[derive(Clone, Copy)]
struct KeyOwners<'a> {
    key: &'a TenantId,
    proxy_key: &'a TenantId,
}

/// Settings and limits that apply to all profiles of a tenant.
pub(super) struct TenantContext {
    /// The tenant, where it waits for limits.
    pub(super) waiting: WaitingTenant,
    pub(super) sheet: TenantSettings,
    /// What a question takes from the tenant's token buckets.
    pub(super) charges: Vec<BucketCharge>,
    /// The tenant has a monthly budget: every call has to be admitted by the ledger first.
    pub(super) has_budget: bool,
    /// That budget bounds the cost, and not only tokens.
    pub(super) has_cost_budget: bool,
    /// Its budget was nearly used up when it was read.
    pub(super) is_near_budget: bool,
    /// An operator suspended the tenant: none of its profiles can be used.
    suspended: bool,
}

/// A profile with its provider, ready for calls.
pub(super) struct ResolvedProfile {
    pub(super) name: ProfileName,
    /// The resolved profile.
    pub(super) profile: Profile,
    /// The provider that answers.
    pub(super) provider: Arc<dyn Provider>,
    /// The provider's batch API, if it has one.
    pub(super) batches: Option<Arc<dyn BatchProvider>>,
    /// Identifies its upstream, with the profile's own model.
    pub(super) upstream: UpstreamKey,
    /// What a question takes from the profile's token buckets and from those of its templates.
    pub(super) charges: Vec<BucketCharge>,
    /// Another tenant pays, because a template lends its key or its endpoint.
    pub(super) lent: bool,
    /// Bounds this profile's calls in flight.
    pub(super) concurrency: Option<Arc<Semaphore>>,
}

impl ProfileCache {
    pub(super) fn new(ledger: Arc<dyn Ledger>, vault: Arc<Vault>, http: Http) -> Self {
        Self { ledger, vault, http, upstreams: Upstreams::default(), cached: Mutex::default() }
    }

    /// Clears cached profiles and keys; the next use reads them again.
    pub(super) fn clear(&self) {
        self.vault.clear();
        let mut cached = self.cached();
        cached.entries.clear();
        cached.inline.clear();
        cached.tenants.clear();
    }

    /// Finds a tenant's profile; without a name, its default profile.
    pub(super) async fn find(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
    ) -> Result<Arc<ResolvedProfile>, AskError> {
        let name = match name {
            Some(name) => name.clone(),
            None => self.default_of(tenant).await?,
        };
        let key = (tenant.clone(), name);
        if let Some((entry, until)) = self.cached().entries.get(&key)
            && Instant::now() < *until
        {
            return Ok(Arc::clone(entry));
        }
        // Boxed: a cache hit should not carry the space for the read.
        Box::pin(self.load(key)).await
    }

    async fn load(&self, key: (TenantId, ProfileName)) -> Result<Arc<ResolvedProfile>, AskError> {
        let now = Instant::now();
        let (tenant, name) = &key;
        self.require_active(tenant).await?;
        let record = self.record(tenant, name).await?;
        let entry = Arc::new(self.open(record).await?);
        let mut cached = self.cached();
        // An expired profile holds a key that may have been revoked.
        cached.entries.retain(|_, (_, until)| now < *until);
        cached.entries.insert(key, (Arc::clone(&entry), now + CACHE_TTL));
        drop(cached);
        Ok(entry)
    }

    /// Resolves an inline profile, which is not in the ledger. It is cached like a stored one, by
    /// its whole text.
    pub(super) async fn find_inline(
        &self,
        tenant: &TenantId,
        profile: &Profile,
    ) -> Result<Arc<ResolvedProfile>, AskError> {
        let key = (tenant.clone(), serde_json::to_string(profile).map_err(internal)?);
        let now = Instant::now();
        if let Some((entry, until)) = self.cached().inline.get(&key)
            && now < *until
        {
            return Ok(Arc::clone(entry));
        }
        self.require_active(tenant).await?;
        let name = ProfileName::new(&profile.name).map_err(internal)?;
        let owners = KeyOwners { key: tenant, proxy_key: tenant };
        let entry = Arc::new(self.entry(tenant, name, profile.clone(), owners).await?);
        let mut cached = self.cached();
        cached.inline.retain(|_, (_, until)| now < *until);
        cached.inline.insert(key, (Arc::clone(&entry), now + CACHE_TTL));
        drop(cached);
        Ok(entry)
    }

    /// Overrides the provider of all profiles with this name.
    pub(super) fn override_provider(&self, profile: ProfileName, provider: Arc<dyn Provider>) {
        self.cached().provider_overrides.insert(profile, provider);
        self.clear();
    }

    /// Fails if the tenant is suspended. Cached profiles need no check: a suspended tenant's are
    /// never cached.
    pub(super) async fn require_active(&self, tenant: &TenantId) -> Result<(), AskError> {
        if !self.tenant(tenant).await?.suspended {
            return Ok(());
        }
        Err(AskError::suspended(format!("tenant `{tenant}` is suspended")))
    }

    /// Settings and limits of a tenant.
    pub(super) async fn tenant(&self, tenant: &TenantId) -> Result<Arc<TenantContext>, AskError> {
        if let Some((owner, until)) = self.cached().tenants.get(tenant)
            && Instant::now() < *until
        {
            return Ok(Arc::clone(owner));
        }
        Box::pin(self.load_tenant(tenant)).await
    }

    async fn load_tenant(&self, tenant: &TenantId) -> Result<Arc<TenantContext>, AskError> {
        let now = Instant::now();
        let name = ProfileName::new(TENANT_SETTINGS).map_err(internal)?;
        let sheet = match self.ledger.profile(&scope(tenant), tenant, &name).await {
            Ok(record) => TenantSettings::read(&record.body).map_err(internal)?,
            Err(Error::NotFound { .. }) => TenantSettings::default(),
            Err(error) => return Err(ledger_error(&error)),
        };
        let month = self.ledger.budget(&scope(tenant), tenant).await;
        let month = month.map_err(|error| ledger_error(&error))?;
        let is_near_budget = month.admit(0, 0) != BudgetDecision::Within;
        let budget = month.budget;
        let has_budget = budget.is_some();
        let has_cost_budget = budget.is_some_and(|budget| budget.cost_picos.is_some());
        // A tenant may have no record.
        let record = self.ledger.tenants(&scope(tenant)).await;
        let record = record.map_err(|error| ledger_error(&error))?.pop();
        let suspended = record.as_ref().is_some_and(|record| record.suspended);
        let weight = record.map_or(1, |record| record.weight);
        let waiting = WaitingTenant { id: tenant.clone(), weight };
        let charges = BucketCharge::of_tenant(tenant, &sheet.limits);
        let owner = Arc::new(TenantContext {
            waiting,
            sheet,
            charges,
            has_budget,
            has_cost_budget,
            is_near_budget,
            suspended,
        });
        self.cached().tenants.insert(tenant.clone(), (Arc::clone(&owner), now + CACHE_TTL));
        Ok(owner)
    }

    async fn default_of(&self, tenant: &TenantId) -> Result<ProfileName, AskError> {
        let owner = self.tenant(tenant).await?;
        owner.sheet.default.clone().ok_or_else(|| {
            let message = format!("tenant `{tenant}` has no default profile, and none was named");
            AskError::new(Code::ProfileNotFound, message)
        })
    }

    async fn record(&self, tenant: &TenantId, name: &ProfileName) -> Result<ProfileRecord, AskError> {
        match self.ledger.profile(&scope(tenant), tenant, name).await {
            // A template can only be extended.
            Ok(record) if ProfileDocument::is_template(&record.body) => Err(unknown(name)),
            Ok(record) if record.suspended => {
                let message = format!("profile `{name}` is suspended");
                Err(AskError::new(Code::ProfileDisabled, message))
            }
            Ok(record) => Ok(record),
            Err(Error::NotFound { .. }) => Err(unknown(name)),
            Err(error) => Err(ledger_error(&error)),
        }
    }

    /// Resolves a stored profile with its templates.
    async fn open(&self, record: ProfileRecord) -> Result<ResolvedProfile, AskError> {
        let (owner, name) = (record.tenant.clone(), record.name.clone());
        let sheet = ProfileDocument::resolve(&*self.ledger, record).await.map_err(|error| match error {
            ProfileDocumentError::Ledger(error) => ledger_error(&error),
            error => internal(error),
        })?;
        let profile = sheet.profile(name.as_str()).map_err(|why| {
            AskError::new(Code::Internal, format!("profile `{name}` cannot be read: {why}"))
        })?;
        let bounds = sheet.bounds().map_err(internal)?;
        let charge =
            |bound: &ScopedLimits| BucketCharge::of_profile(&bound.tenant, &bound.profile, &bound.limits);
        let charges = bounds.iter().flat_map(charge).collect();
        let owners = KeyOwners {
            key: sheet.key_owner().unwrap_or(&owner),
            proxy_key: sheet.proxy_key_owner().unwrap_or(&owner),
        };
        let entry = self.entry(&owner, name, profile, owners).await?;
        Ok(ResolvedProfile { charges, lent: sheet.is_lent(), ..entry })
    }

    /// Completes a profile's prices, and opens its keys and its provider.
    async fn entry(
        &self,
        tenant: &TenantId,
        name: ProfileName,
        mut profile: Profile,
        owners: KeyOwners<'_>,
    ) -> Result<ResolvedProfile, AskError> {
        if profile.is_billed() {
            let table = PriceTable::load(&*self.ledger).await;
            table.map_err(|error| ledger_error(&error))?.complete(&mut profile);
        }
        let key = self.key(&name, profile.key.as_deref(), owners.key).await?;
        let proxy_key = self.key(&name, profile.proxy_key.as_deref(), owners.proxy_key).await?;
        let options = HttpOptions::new(profile.proxy.as_deref(), proxy_key, profile.ca.as_deref());
        let options = options.map_err(|error| {
            AskError::new(Code::Internal, format!("profile `{name}` cannot be opened: {error}"))
        })?;
        let http = self.client(options);
        let upstream = upstream_key(&profile, owners.key, key.as_ref());
        let many = batches::open(&profile, key.clone(), &http).ok();
        let overridden = self.cached().provider_overrides.get(&name).map(Arc::clone);
        let provider = overridden.map_or_else(|| providers::open(&profile, key, &http), Ok);
        let provider = provider.map_err(|error| {
            AskError::new(Code::Internal, format!("profile `{name}` cannot be opened: {error}"))
        })?;
        let concurrency = profile.limits.in_flight.map(|most| self.concurrency_limit(tenant, &name, most));
        let charges = BucketCharge::of_profile(tenant, &name, &profile.limits);
        let (batches, lent) = (many, false);
        Ok(ResolvedProfile { name, profile, provider, batches, upstream, charges, lent, concurrency })
    }

    fn concurrency_limit(&self, tenant: &TenantId, name: &ProfileName, most: u32) -> Arc<Semaphore> {
        let key = (tenant.clone(), name.clone(), most.max(1));
        let concurrency = || Arc::new(Semaphore::new(most.max(1) as usize));
        Arc::clone(self.cached().concurrency_limits.entry(key).or_insert_with(concurrency))
    }

    /// The HTTP client with these options.
    fn client(&self, options: HttpOptions) -> Http {
        if options.is_default() {
            return self.http.clone();
        }
        let (mut cached, now) = (self.cached(), Instant::now());
        cached.clients.retain(|(_, _, used)| now < *used + CLIENT_TTL);
        if let Some((_, http, used)) = cached.clients.iter_mut().find(|(known, ..)| *known == options) {
            *used = now;
            return http.clone();
        }
        let http = Http::with(&options);
        cached.clients.push((options, http.clone(), now));
        http
    }

    async fn key(
        &self,
        name: &ProfileName,
        reference: Option<&str>,
        owner: &TenantId,
    ) -> Result<Option<SecretString>, AskError> {
        let Some(key) = reference else { return Ok(None) };
        let refused = |error: &dyn std::fmt::Display| {
            AskError::new(Code::ProviderAuth, format!("the key of profile `{name}`: {error}"))
        };
        let key: KeyRef = key.parse().map_err(|error| refused(&error))?;
        let opened = self.vault.open(&scope(owner), owner, &key).await;
        opened.map(Some).map_err(|error| refused(&error))
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, CachedProfiles> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which profiles share health state. A simulated provider shares it with no other profile.
fn upstream_key(profile: &Profile, owner: &TenantId, secret: Option<&SecretString>) -> UpstreamKey {
    let simulated = providers::capabilities(profile.provider).simulated;
    let end = profile.endpoint.as_deref().unwrap_or_default();
    let end = if simulated { &profile.name } else { end };
    let key = profile.key.as_deref().unwrap_or_default();
    let proxy = profile.proxy.as_deref().unwrap_or_default();
    let mut certificates = DefaultHasher::new();
    profile.ca.hash(&mut certificates);
    let certificates = certificates.finish();
    // A key that was rotated has credit of its own, and headers may name another account.
    let mut hasher = DefaultHasher::new();
    secret.map(ExposeSecret::expose_secret).hash(&mut hasher);
    profile.wire.headers.hash(&mut hasher);
    UpstreamKey {
        endpoint: format!("{} {end} {proxy} {certificates}", profile.provider),
        credential: format!("{owner} {key} {}", hasher.finish()),
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

/// The error if the ledger could not read a question's profile or budget.
pub(super) fn ledger_error(error: &Error) -> AskError {
    let again = if error.is_retryable() { Retryability::NotSent } else { Retryability::Never };
    AskError { retry: again, ..AskError::new(Code::Internal, format!("the ledger cannot be read: {error}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProviderName;

    #[test]
    fn a_rotated_key_shares_no_health_with_the_old_one() {
        let (profile, owner) = (Profile::new("p", ProviderName::Openai), TenantId::default());
        let key = |secret: &str| upstream_key(&profile, &owner, Some(&SecretString::from(secret)));
        assert_eq!(key("a"), key("a"));
        assert_ne!(key("a"), key("b"));
    }

    #[test]
    fn health_is_shared_by_endpoint_model_and_credential_and_by_all_who_borrow_a_key() {
        let (lender, acme) = (TenantId::default(), TenantId::new("acme").unwrap());
        let profile = |name: &str, endpoint: &str, model: &str, key: &str| {
            let (endpoint, key) = (Some(endpoint.to_owned()), Some(key.to_owned()));
            Profile { endpoint, key, model: model.to_owned(), ..Profile::new(name, ProviderName::Openai) }
        };
        let key =
            |profile: &Profile, owner| upstream_key(profile, owner, Some(&SecretString::from("secret")));
        let first = key(&profile("p", "https://a", "m", "k"), &lender);
        assert_eq!(first, key(&profile("borrowed", "https://a", "m", "k"), &lender));
        for other in [("https://b", "m", "k"), ("https://a", "n", "k"), ("https://a", "m", "l")] {
            assert_ne!(first, key(&profile("p", other.0, other.1, other.2), &lender), "{other:?}");
        }
        assert_ne!(
            first,
            key(&profile("p", "https://a", "m", "k"), &acme),
            "a key of its own of the same name"
        );
    }

    #[test]
    fn a_profile_with_wrong_certificates_or_headers_holds_up_no_other() {
        let (profile, owner) = (Profile::new("p", ProviderName::Openai), TenantId::default());
        let key = |profile: &Profile| upstream_key(profile, &owner, None);
        let ca = Profile { ca: Some("wrong.pem".into()), ..profile.clone() };
        let mut headers = profile.clone();
        headers.wire.headers.insert("openai-organization".into(), "other".into());
        assert_eq!(key(&profile), key(&profile.clone()));
        assert_ne!(key(&profile), key(&ca));
        assert_ne!(key(&profile), key(&headers));
    }
}
