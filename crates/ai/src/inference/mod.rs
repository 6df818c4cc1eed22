//! Inference: every model call, from units, batch rows, the gateway and the command line, goes
//! through here.
//!
//! Given a tenant, a profile's name and a question, it resolves the tenant's own profile, applies
//! its limits and budget, retries where that helps and costs nothing, and records the call in the
//! ledger. The decisions are pure functions in [`crate::resilience`]; this module calls them in
//! order.

mod admission;
mod batch_api;
mod budget_warnings;
mod call;
mod events;
mod gateway_backend;
mod journal;
mod open_call;
mod profile_cache;
mod profile_document;
mod profile_resolution;
mod repair;
mod request;
mod retry_loop;
mod session_heartbeat;
mod upstream_health;
mod yielding_wait;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore::ledger::{CallEnd, CallRecord, CallStatus, Ledger, NewCall};
use longshore::store::Topic;
use longshore::{Clock, PoolBook, ProfileName, Scope, SessionId, Store, SystemClock, TenantId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::budget_warnings::BudgetWarnings;
use self::call::ProfileCall;
use self::journal::Journal;
use self::profile_cache::{ProfileCache, ResolvedProfile};
use self::session_heartbeat::SessionHeartbeat;
use crate::chat::Piece;
use crate::http::Http;
use crate::model_api::{Again, Answer, AskError, Bill, Code, Provider, Question};
use crate::profile::Profile;
use crate::resilience::{CallRetryPolicy, Limiter};
use crate::vault::Vault;

pub use self::batch_api::Bulk;
pub use self::profile_document::{Sheet, TENANT_SHEET, TenantSheet};
pub use self::profile_resolution::SheetError;
pub use self::request::{Errand, Settled};

/// Longest wait of one poll of the change feed.
const CHANGE_POLL: Duration = Duration::from_secs(30);

/// Entry point for model calls. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    inner: Arc<Inner>,
}

struct Inner {
    ledger: Arc<dyn Ledger>,
    profile_cache: ProfileCache,
    limiter: Limiter,
    journal: Journal,
    retry_policy: CallRetryPolicy,
    clock: Arc<dyn Clock>,
    label: String,
    heartbeat: SessionHeartbeat,
    warnings: BudgetWarnings,
    pools: OnceLock<PoolBook>,
}

impl Desk {
    /// Inference on a ledger. `label` names this process to operators. The caller has to run
    /// [`Desk::keep_books`] alongside.
    pub fn new(ledger: Arc<dyn Ledger>, vault: Arc<Vault>, http: Http, label: String) -> Self {
        let profile_cache = ProfileCache::new(Arc::clone(&ledger), vault, http);
        let limiter = Limiter::new(Arc::clone(&ledger) as _);
        let journal = Journal::new(Arc::clone(&ledger) as _);
        let (retry_policy, clock) = (CallRetryPolicy::default(), Arc::new(SystemClock));
        let inner = Inner {
            ledger,
            profile_cache,
            limiter,
            journal,
            retry_policy,
            clock,
            label,
            heartbeat: SessionHeartbeat::default(),
            warnings: BudgetWarnings::default(),
            pools: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the bounded pools that profiles may name. Call once, before the first question.
    #[must_use]
    pub fn with_pools(self, pools: PoolBook) -> Self {
        // A second call is ignored.
        let _ = self.inner.pools.set(pools);
        self
    }

    /// The bounded pools that profiles may name.
    pub fn pools(&self) -> PoolBook {
        self.inner.pools.get().cloned().unwrap_or_default()
    }

    /// Clears cached profiles and keys; the next use reads them again.
    pub fn clear(&self) {
        self.inner.profile_cache.clear();
    }

    /// Writes journalled calls that belong to no unit, until dropped.
    pub async fn keep_books(&self) {
        self.inner.journal.run().await;
    }

    /// Waits until every journalled call is written. [`Desk::keep_books`] has to run meanwhile.
    pub async fn books_kept(&self) {
        self.inner.journal.flush().await;
    }

    /// Keeps a session of this process alive in the store, until dropped. If the process dies, its
    /// open calls that belong to no unit become "maybe billed".
    pub async fn be_present(&self, store: &dyn Store) {
        self.inner.heartbeat.run(store, &self.inner.label).await;
    }

    /// That session, while it is open.
    pub fn session(&self) -> Option<SessionId> {
        self.inner.heartbeat.session()
    }

    /// Closes that session.
    pub async fn leave(&self, store: &dyn Store) -> longshore::Result<()> {
        self.inner.heartbeat.close(store).await
    }

    /// Clears cached profiles and keys when a profile, key, budget or tenant changes, until
    /// dropped.
    pub async fn hear_of_changes(&self, store: &dyn Store) -> longshore::Result<()> {
        let mut cursor = u64::MAX;
        loop {
            let news = store.changes(&Scope::All, cursor, CHANGE_POLL).await?;
            cursor = news.cursor;
            let ours = |topic: &Topic| match topic {
                Topic::Setting(what) => {
                    ["profile", "key", "budget", "tenant"].contains(&what.as_str())
                }
                _ => false,
            };
            if news.missed || news.changes.iter().any(|change| ours(&change.topic)) {
                self.clear();
            }
        }
    }

    /// A tenant's current profile.
    pub async fn profile(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
    ) -> Result<Profile, AskError> {
        Ok(self.inner.profile_cache.find(tenant, name).await?.profile.clone())
    }

    /// Checks that a profile's provider is reachable and accepts its key. Returns the provider's
    /// description of itself.
    pub async fn health(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
        until: Instant,
    ) -> Result<String, AskError> {
        self.inner.profile_cache.find(tenant, name).await?.provider.health(until).await
    }

    /// Overrides the provider of all profiles with this name, for programs that bring their own.
    /// Applies to profiles that are resolved from now on.
    pub fn answer_for(&self, profile: ProfileName, provider: Arc<dyn Provider>) {
        self.inner.profile_cache.override_provider(profile, provider);
    }

    /// Asks the profile's provider and returns the outcome. The caller has to write the outcome's
    /// records: with the end of its unit, or by [`Desk::note`].
    pub async fn ask(&self, request: &Errand, pieces: Option<&mpsc::Sender<Piece>>) -> Settled {
        let first = self.inner.profile_cache.find(&request.tenant, request.profile.as_ref()).await;
        self.ask_from(first, request.profile.as_ref(), request, pieces).await
    }

    /// Asks by an inline profile that is not in the ledger. Its key and its fallback profiles
    /// belong to the request's tenant; the ledger records it by name.
    pub async fn ask_by(&self, profile: &Profile, request: &Errand) -> Settled {
        let first = self.inner.profile_cache.find_inline(&request.tenant, profile).await;
        let name = ProfileName::new(&profile.name).ok();
        self.ask_from(first, name.as_ref(), request, None).await
    }

    async fn ask_from(
        &self,
        first: Result<Arc<ResolvedProfile>, AskError>,
        name: Option<&ProfileName>,
        request: &Errand,
        pieces: Option<&mpsc::Sender<Piece>>,
    ) -> Settled {
        let mut outcome = Settled::default();
        let first = match first {
            Ok(entry) => entry,
            Err(error) => {
                self.reject(request, name, error, &mut outcome);
                return outcome;
            }
        };
        let inner = &*self.inner;
        ProfileCall { inner, entry: &first, request }.make(pieces, &mut outcome).await;
        if !outcome.is_final() {
            // Boxed: fallbacks are rare, and every call's future would carry the space.
            Box::pin(self.ask_others(&first, request, pieces, &mut outcome)).await;
        }
        outcome
    }

    /// Asks the fallback profiles in turn.
    async fn ask_others(
        &self,
        first: &ResolvedProfile,
        request: &Errand,
        pieces: Option<&mpsc::Sender<Piece>>,
        outcome: &mut Settled,
    ) {
        let inner = &*self.inner;
        let mut asked = vec![first.name.clone()];
        // The requested model belongs to the first profile; fallbacks use their own.
        let question = Question { model: None, ..request.question.clone() };
        let elsewhere = Errand { question, ..request.clone() };
        for name in self.fallbacks(request, first).await {
            if asked.contains(&name) {
                continue;
            }
            match self.inner.profile_cache.find(&request.tenant, Some(&name)).await {
                Ok(entry) => {
                    let call = ProfileCall { inner, entry: &entry, request: &elsewhere };
                    call.make(pieces, outcome).await;
                }
                Err(error) => self.reject(request, Some(&name), error, outcome),
            }
            asked.push(name);
            if outcome.is_final() {
                break;
            }
        }
    }

    /// Journals records of calls that belong to no unit.
    pub async fn note(&self, records: Vec<CallRecord>) {
        self.inner.journal.capacity().await;
        for record in records {
            self.inner.journal.append(record);
        }
    }

    /// The profile's fallbacks, then the tenant's.
    async fn fallbacks(&self, request: &Errand, entry: &ResolvedProfile) -> Vec<ProfileName> {
        let own = entry.profile.fallback.iter().filter_map(|name| ProfileName::new(name).ok());
        let tenants = self.inner.profile_cache.tenant(&request.tenant).await.ok();
        let tenants = tenants.and_then(|owner| owner.sheet.fallback.clone());
        own.chain(tenants).collect()
    }

    /// Handles a profile that could not be resolved. The first one is recorded as a failed call; a
    /// fallback is only logged.
    fn reject(
        &self,
        request: &Errand,
        name: Option<&ProfileName>,
        error: AskError,
        outcome: &mut Settled,
    ) {
        if !outcome.is_pending() {
            tracing::warn!(profile = ?name, %error, "a fallback profile cannot be used");
            return;
        }
        if let Some(name) = name {
            outcome.records.push(self.rejected_record(request, name, &error));
        }
        outcome.result = Err(error);
    }

    /// The ledger record of a question that was rejected before a provider was asked.
    pub(crate) fn rejected_record(
        &self,
        request: &Errand,
        name: &ProfileName,
        error: &AskError,
    ) -> CallRecord {
        let call = self.inner.new_call(request, name, "", "");
        CallRecord { call, end: Some(failed(error, 0, 0)) }
    }
}

impl Inner {
    fn new_call(
        &self,
        request: &Errand,
        profile: &ProfileName,
        provider: &str,
        model: &str,
    ) -> NewCall {
        NewCall {
            request_id: request.question.request_id.clone(),
            unit: request.unit,
            batch: request.batch.clone(),
            session: request.session.or_else(|| self.heartbeat.session()),
            worker: self.label.clone(),
            ..NewCall::new(request.tenant.clone(), profile.clone(), provider, model)
        }
    }
}

/// The end of a failed call.
fn failed(error: &AskError, attempts: u32, latency_ms: u64) -> CallEnd {
    CallEnd {
        code: Some(error.code.as_str().to_owned()),
        latency_ms,
        attempts,
        ..CallEnd::new(CallStatus::Error, "")
    }
}

/// Whether a fallback profile may succeed: not if the question is invalid, and not if it may have
/// been billed.
fn fallback_may_help(error: &AskError) -> bool {
    if error.bill != Bill::Nothing {
        return false;
    }
    match error.code {
        Code::ProviderError => error.again != Again::Never || error.provider_status.is_some(),
        Code::RateLimited | Code::ProviderAuth => true,
        Code::OverBudget => error.again == Again::Money,
        _ => false,
    }
}

/// The end of an answered call.
fn succeeded(answer: &Answer, attempts: u32, latency_ms: u64, cost_picos: i64) -> CallEnd {
    CallEnd {
        tokens_in: answer.tokens_in,
        tokens_out: answer.tokens_out,
        tokens_cached: answer.tokens_cached,
        tokens_cache_write: answer.tokens_cache_write + answer.tokens_cache_write_long,
        tokens_cache_write_long: answer.tokens_cache_write_long,
        latency_ms,
        attempts,
        cost_picos,
        estimated: answer.estimated,
        tier: answer.tier.clone(),
        ..CallEnd::new(CallStatus::Success, answer.model.clone())
    }
}
