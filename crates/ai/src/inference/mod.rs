//! Inference: every model call, from units, batch rows, the gateway and the command line, goes
//! through here.
//!
//! Given a tenant, a profile's name and a question, it resolves the tenant's own profile, applies
//! its limits and budget, retries where that helps and costs nothing, and records the call in the
//! ledger. The decisions are pure functions in [`crate::resilience`]; this module calls them in
//! order.

mod admission;
mod batch_api;
mod billing;
mod call;
mod call_bound;
mod health;
mod journal;
mod profile_cache;
mod profile_document;
mod profile_resolution;
mod repair;
mod retry_loop;
mod session_heartbeat;
mod upstream_health;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore::accounts::{Call, CallRecord, Ledger};
use longshore::store::Topic;
use longshore::{
    AlertSink, BatchId, Clock, Context, PoolRegistry, ProfileName, Scope, SessionId, Store, SystemClock,
    TenantId, UnitId, Verdict,
};
use tokio::time::Instant;

use self::admission::budget::BudgetWarnings;
use self::billing::RejectionRecords;
use self::journal::Journal;
use self::profile_cache::ProfileCache;
use self::session_heartbeat::SessionHeartbeat;
use crate::http::Http;
use crate::model_api::{Answer, AskError, BillingStatus, Code, Provider, Question, Retryability};
use crate::profile::Profile;
use crate::resilience::Limiter;
use crate::vault::Vault;

pub use self::batch_api::BatchProfile;
pub use self::health::HealthCheck;
pub use self::profile_document::{ProfileDocument, TENANT_SETTINGS, TenantSettings};
pub use self::profile_resolution::ProfileDocumentError;

/// How long a unit is put off if the error has no retry time, and how long at least.
const DEFERRAL_DELAY: Duration = Duration::from_secs(1);
const MIN_DEFERRAL_DELAY: Duration = Duration::from_millis(100);

/// Longest wait of one poll of the change feed.
const CHANGE_POLL: Duration = Duration::from_secs(30);

/// Entry point for model calls. Cheap to clone.
#[derive(Clone)]
pub struct Inference {
    inner: Arc<Inner>,
}

struct Inner {
    ledger: Arc<dyn Ledger>,
    profile_cache: ProfileCache,
    limiter: Limiter,
    journal: Journal,
    clock: Arc<dyn Clock>,
    label: String,
    heartbeat: SessionHeartbeat,
    warnings: BudgetWarnings,
    rejections: RejectionRecords,
    pools: OnceLock<PoolRegistry>,
    /// Whether error messages may quote prompts.
    quotes_prompts: AtomicBool,
    /// The ledger belongs to another store than the units that ask.
    is_separate: OnceLock<()>,
}

impl Inference {
    /// Inference on a ledger. `label` names this process to operators. The caller has to run
    /// [`Inference::run_journal`] alongside.
    pub fn new(ledger: Arc<dyn Ledger>, vault: Arc<Vault>, http: Http, label: String) -> Self {
        let profile_cache = ProfileCache::new(Arc::clone(&ledger), vault, http);
        let limiter = Limiter::new(Arc::clone(&ledger) as _);
        let journal = Journal::new(Arc::clone(&ledger) as _);
        let clock = Arc::new(SystemClock);
        let inner = Inner {
            ledger,
            profile_cache,
            limiter,
            journal,
            clock,
            label,
            heartbeat: SessionHeartbeat::default(),
            warnings: BudgetWarnings::default(),
            rejections: RejectionRecords::default(),
            pools: OnceLock::new(),
            quotes_prompts: AtomicBool::new(false),
            is_separate: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the bounded pools that profiles may name. Call once, before the first question.
    #[must_use]
    pub fn with_pools(self, pools: PoolRegistry) -> Self {
        // A second call is ignored.
        let _ = self.inner.pools.set(pools);
        self
    }

    /// Sets the receiver of alerts: of budgets that are nearly used up. [`Inference::run_alerts`]
    /// delivers them. Without a receiver they are logged.
    #[must_use]
    pub fn with_alert_sink(self, sink: Arc<dyn AlertSink>) -> Self {
        self.inner.warnings.set_sink(sink);
        self
    }

    /// Delivers alerts, until dropped.
    pub async fn run_alerts(&self) {
        self.inner.warnings.run().await;
    }

    /// Delivers the alerts that wait.
    pub async fn flush_alerts(&self) {
        self.inner.warnings.deliver().await;
    }

    /// Allows or forbids error messages that quote prompts; by default they are forbidden.
    #[must_use]
    pub fn with_prompt_quotes(self, allowed: bool) -> Self {
        self.inner.quotes_prompts.store(allowed, Ordering::Relaxed);
        self
    }

    /// The bounded pools that profiles may name.
    pub fn pools(&self) -> PoolRegistry {
        self.inner.pools.get().cloned().unwrap_or_default()
    }

    /// Declares that the ledger belongs to another store than the units that ask. Then a call's
    /// record is journalled, since it cannot be written with the end of its unit, and the call
    /// belongs to the session of [`Inference::run_heartbeat`].
    #[must_use]
    pub fn with_separate_ledger(self) -> Self {
        self.inner.is_separate.get_or_init(|| ());
        self
    }

    /// Clears cached profiles and keys; the next use reads them again.
    pub fn clear_cache(&self) {
        self.inner.profile_cache.clear();
    }

    /// Writes journalled calls that belong to no unit, until dropped.
    pub async fn run_journal(&self) {
        self.inner.journal.run().await;
    }

    /// Waits until every journalled call is written. [`Inference::run_journal`] has to run meanwhile.
    pub async fn flush_journal(&self) {
        self.inner.journal.flush().await;
    }

    /// Keeps a session of this process alive in the store, until dropped. If the process dies, its
    /// open calls that belong to no unit become "maybe billed".
    pub async fn run_heartbeat(&self, store: &dyn Store) {
        self.inner.heartbeat.run(store, &self.inner.label).await;
    }

    /// That session, while it is open.
    pub fn session(&self) -> Option<SessionId> {
        self.inner.heartbeat.session()
    }

    /// Closes that session.
    pub async fn close_session(&self, store: &dyn Store) -> longshore::Result<()> {
        self.inner.heartbeat.close(store).await
    }

    /// Clears cached profiles and keys when a profile, key, budget or tenant changes, until
    /// dropped.
    pub async fn watch_changes(&self, store: &dyn Store) -> longshore::Result<()> {
        let mut cursor = u64::MAX;
        loop {
            let news = store.changes(&Scope::All, cursor, CHANGE_POLL).await?;
            cursor = news.cursor;
            let ours = |topic: &Topic| match topic {
                Topic::Setting(what) => ["profile", "key", "budget", "tenant"].contains(&what.as_str()),
                _ => false,
            };
            if news.missed || news.changes.iter().any(|change| ours(&change.topic)) {
                self.clear_cache();
            }
        }
    }

    /// A tenant's current profile.
    pub async fn profile(&self, tenant: &TenantId, name: Option<&ProfileName>) -> Result<Profile, AskError> {
        Ok(self.inner.profile_cache.find(tenant, name).await?.profile.clone())
    }

    /// Overrides the provider of all profiles with this name, for programs that bring their own.
    /// Applies to profiles that are resolved from now on.
    pub fn override_provider(&self, profile: ProfileName, provider: Arc<dyn Provider>) {
        self.inner.profile_cache.override_provider(profile, provider);
    }

    /// Journals records of calls that belong to no unit.
    pub async fn record_calls(&self, records: Vec<CallRecord>) {
        self.inner.journal.capacity().await;
        for record in records {
            self.inner.journal.append(record);
        }
    }
}

/// A question, with the tenant, profile and unit that it is asked for.
#[derive(Debug, Clone)]
pub struct InferenceRequest {
    /// The tenant that pays.
    pub tenant: TenantId,
    /// The tenant's profile; `None` is its default.
    pub profile: Option<ProfileName>,
    /// The question.
    pub question: Question,
    /// The unit that asks.
    pub unit: Option<UnitId>,
    /// The batch that the unit belongs to.
    pub batch: Option<BatchId>,
    /// The session that asks. If it dies, the call becomes "maybe billed".
    pub session: Option<SessionId>,
    /// The unit's run. While the question waits, the run reports that it waits, and the unit gives its
    /// slot back if another unit needs it ([`InferenceOutcome::deferral`]). Without a run the question
    /// keeps waiting.
    pub run: Option<Context>,
}

impl InferenceRequest {
    /// A question of no unit.
    pub fn new(tenant: TenantId, profile: Option<ProfileName>, question: Question) -> Self {
        Self { tenant, profile, question, unit: None, batch: None, session: None, run: None }
    }
}

/// The outcome of an inference call.
#[derive(Debug, Clone)]
pub struct InferenceOutcome {
    /// The answer, or the error.
    pub result: Result<Answer, AskError>,
    /// Why the answer does not follow the question's JSON Schema, and what became of its
    /// correction. An answer that was streamed, truncated or withheld is not checked.
    pub schema_error: Option<String>,
    /// How often a provider was asked, over all profiles.
    pub attempts: u32,
    /// The cost of all calls.
    pub cost_picos: i64,
    /// Ledger records, one per profile that was asked.
    pub records: Vec<CallRecord>,
    /// Another unit asked the same request before.
    pub duplicate: Option<Box<Call>>,
    /// The worker needed the unit's slot while the question waited.
    yields: bool,
    /// A question reached a provider.
    sent: bool,
    /// It was not sent again because the provider's breaker is open.
    blocked: bool,
    /// Part of the answer was streamed to the caller: no other profile may be asked.
    streamed: bool,
    /// A profile was tried.
    tried: bool,
}

impl Default for InferenceOutcome {
    fn default() -> Self {
        Self {
            result: Err(AskError::new(Code::Internal, "no provider was asked")),
            schema_error: None,
            attempts: 0,
            cost_picos: 0,
            records: Vec::new(),
            duplicate: None,
            yields: false,
            sent: false,
            blocked: false,
            streamed: false,
            tried: false,
        }
    }
}

impl InferenceOutcome {
    /// The outcome of a question that is not recorded, or that another process records.
    pub fn unrecorded(result: Result<Answer, AskError>, cost_picos: i64) -> Self {
        Self { result, cost_picos, sent: true, ..Self::default() }
    }

    /// The outcome of a question that was not sent.
    pub(crate) fn not_sent(error: AskError) -> Self {
        Self { result: Err(error), ..Self::default() }
    }

    /// How the unit is put off if its question was not sent and may be sent later: the provider is
    /// unavailable, a limit did not admit it in time, or the store did not answer. The unit uses no
    /// attempt. [`InferenceOutcome::admitted_records`] have to be written all the same.
    pub fn deferral(&self) -> Option<Deferral> {
        if self.yields {
            return Some(Deferral::Yield);
        }
        self.deferrable_error().filter(|_| !self.sent).map(defer)
    }

    /// How the unit is put off if its question was rejected, and the provider's breaker is open: other
    /// requests failed as well. A caller without a deadline has to bound how often it does that,
    /// because the provider may fail on the unit's own question.
    pub fn blocked_deferral(&self) -> Option<Deferral> {
        self.deferrable_error().filter(|_| self.blocked).map(defer)
    }

    /// Whether a client that waits may repeat a question that failed. After several attempts of our
    /// own, further ones would multiply the load and the time, unless the attempts ended because the
    /// breaker opened, or none was sent.
    pub(crate) fn may_be_repeated(&self) -> bool {
        let was_sent = self.result.as_ref().err().is_none_or(|error| error.retry != Retryability::NotSent);
        self.attempts <= 1 || self.blocked || !was_sent
    }

    /// How a request with an absolute deadline is put off. Not if it would run again after its
    /// deadline, and not by a limit, which was waited for already.
    pub(crate) fn deferral_before(&self, deadline: Instant) -> Option<Deferral> {
        let is_limited = self.result.as_ref().is_err_and(|error| error.code == Code::RateLimited);
        match self.deferral().or_else(|| self.blocked_deferral())? {
            Deferral::After(after) if is_limited || deadline <= Instant::now() + after => None,
            deferral => Some(deferral),
        }
    }

    /// The error of a question that may be sent later, and was not billed.
    fn deferrable_error(&self) -> Option<&AskError> {
        let error = self.result.as_ref().err().filter(|_| self.duplicate.is_none() && !self.streamed)?;
        let later = matches!(error.retry, Retryability::Later | Retryability::NotSent);
        (later && error.billing == BillingStatus::Nothing).then_some(error)
    }

    /// Records of calls that the ledger admitted. A unit that is put off leaves no others.
    pub fn admitted_records(self) -> Vec<CallRecord> {
        self.records.into_iter().filter(|record| record.call.reserve_tokens > 0).collect()
    }

    /// The answer, if it follows its schema. An answer that does not was billed all the same.
    pub fn into_valid(self) -> Result<Answer, AskError> {
        match (self.result, self.schema_error) {
            (Ok(answer), Some(why)) => {
                let billing = BillingStatus::Partial(Box::new(answer));
                Err(AskError { billing, ..AskError::new(Code::ProviderError, why) })
            }
            (result, _) => result,
        }
    }

    /// Adds an ended call.
    fn add(&mut self, record: Option<CallRecord>) {
        let end = record.as_ref().and_then(|record| record.end.as_ref());
        self.cost_picos = self.cost_picos.saturating_add(end.map_or(0, |end| end.cost_picos));
        self.attempts += end.map_or(0, |end| end.attempts);
        self.tried = true;
        // Usually one; a push into an empty vector would allocate space for four.
        self.records.reserve_exact(1);
        self.records.extend(record);
    }

    /// Adds a profile that was not asked.
    fn reject(&mut self, record: Option<CallRecord>, error: AskError) {
        self.add(record);
        self.result = Err(error);
    }

    /// Whether no profile has been tried yet.
    fn is_pending(&self) -> bool {
        !self.tried && self.duplicate.is_none()
    }

    /// Whether asking another profile cannot help.
    fn is_final(&self) -> bool {
        let hopeless = |error: &AskError| !fallback_may_help(error);
        let ended = self.streamed || self.yields || self.duplicate.is_some();
        ended || self.result.as_ref().err().is_none_or(hopeless)
    }
}

/// How a unit is put off, without an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deferral {
    /// It is requeued at its old position: another unit needs the slot.
    Yield,
    /// It runs again after this time.
    After(Duration),
}

impl From<Deferral> for Verdict {
    fn from(deferral: Deferral) -> Self {
        match deferral {
            Deferral::Yield => Self::Yield,
            Deferral::After(after) => Self::Snooze(after),
        }
    }
}

fn defer(error: &AskError) -> Deferral {
    Deferral::After(error.retry_after.unwrap_or(DEFERRAL_DELAY).max(MIN_DEFERRAL_DELAY))
}

/// Whether a fallback profile may succeed: not if the question is invalid, and not if it may have
/// been billed.
fn fallback_may_help(error: &AskError) -> bool {
    if error.billing != BillingStatus::Nothing {
        return false;
    }
    match error.code {
        Code::ProviderError => error.retry != Retryability::Never || error.provider_status.is_some(),
        Code::RateLimited | Code::ProviderAuth => true,
        Code::OverBudget => error.retry == Retryability::AfterTopUp,
        _ => false,
    }
}
