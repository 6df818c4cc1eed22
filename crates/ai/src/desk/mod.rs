//! The desk: where questions are asked, whoever asks them.
//!
//! From a tenant, a profile's name and a question to an answer, by the tenant's own profile, within
//! its limits and its budget, tried again where that helps and costs nothing, and written in the
//! books. Units, rows, the gateway and the command line all ask here. What is decided is in pure
//! modules ([`crate::tries`], [`crate::breaker`]); this puts them in order.

mod attempts;
mod bulk;
mod call;
mod counter;
mod errand;
mod events;
mod journal;
mod leave;
mod line;
mod open_call;
mod patience;
mod presence;
mod register;
mod repair;
mod sheet;
mod warnings;
mod whole;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore::ledger::{CallEnd, CallMode, CallRecord, CallStatus, Ledger, NewCall};
use longshore::store::Topic;
use longshore::{
    CallId, Clock, PoolBook, ProfileName, Scope, SessionId, Store, SystemClock, TenantId,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::call::CallToMake;
use self::journal::Journal;
use self::presence::Presence;
use self::register::{Entry, Register};
use self::warnings::Warnings;
use crate::ask::{Again, Answer, AskError, Bill, Code, Provider, Question};
use crate::chat::Piece;
use crate::http::Http;
use crate::limiter::Limiter;
use crate::profile::Profile;
use crate::tries::Tries;
use crate::vault::Vault;

pub use self::bulk::Bulk;
pub use self::errand::{Errand, Settled};
pub use self::sheet::{Sheet, TENANT_SHEET, TenantSheet};
pub use self::whole::SheetError;

/// How long one look at the change feed may last.
const LISTEN: Duration = Duration::from_secs(30);

/// Where questions are asked. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    inner: Arc<Inner>,
}

struct Inner {
    ledger: Arc<dyn Ledger>,
    register: Register,
    limiter: Limiter,
    journal: Journal,
    tries: Tries,
    clock: Arc<dyn Clock>,
    label: String,
    presence: Presence,
    warnings: Warnings,
    pools: OnceLock<PoolBook>,
}

impl Desk {
    /// A desk on a ledger. `label` says who asks, for people. Somebody has to await
    /// [`Desk::keep_books`] beside it.
    pub fn new(ledger: Arc<dyn Ledger>, vault: Arc<Vault>, http: Http, label: String) -> Self {
        let register = Register::new(Arc::clone(&ledger), vault, http);
        let limiter = Limiter::new(Arc::clone(&ledger) as _);
        let journal = Journal::new(Arc::clone(&ledger) as _);
        let (tries, clock) = (Tries::default(), Arc::new(SystemClock));
        let inner = Inner {
            ledger,
            register,
            limiter,
            journal,
            tries,
            clock,
            label,
            presence: Presence::default(),
            warnings: Warnings::default(),
            pools: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The bounded pools that profiles may name. Said once, before anything is asked.
    #[must_use]
    pub fn with_pools(self, pools: PoolBook) -> Self {
        // Whoever says it twice meant the first.
        let _ = self.inner.pools.set(pools);
        self
    }

    /// The bounded pools that profiles may name.
    pub fn pools(&self) -> PoolBook {
        self.inner.pools.get().cloned().unwrap_or_default()
    }

    /// Forgets profiles and keys: the next use reads them anew.
    pub fn clear(&self) {
        self.inner.register.clear();
    }

    /// Writes the calls of no unit, for as long as it is awaited.
    pub async fn keep_books(&self) {
        self.inner.journal.run().await;
    }

    /// Waits until every call that was made so far is written. [`Desk::keep_books`] has to run
    /// meanwhile.
    pub async fn books_kept(&self) {
        self.inner.journal.flushed().await;
    }

    /// Has a session of its own in the store, for as long as it is awaited: should this process die,
    /// the calls of no unit that are out become "maybe billed".
    pub async fn be_present(&self, store: &dyn Store) {
        self.inner.presence.keep(store, &self.inner.label).await;
    }

    /// That session, while there is one.
    pub fn session(&self) -> Option<SessionId> {
        self.inner.presence.session()
    }

    /// Ends that session in good order.
    pub async fn leave(&self, store: &dyn Store) -> longshore::Result<()> {
        self.inner.presence.end(store).await
    }

    /// Forgets profiles and keys whenever one of them or a tenant changes, for as long as it is awaited.
    pub async fn hear_of_changes(&self, store: &dyn Store) -> longshore::Result<()> {
        let mut cursor = u64::MAX;
        loop {
            let news = store.changes(&Scope::All, cursor, LISTEN).await?;
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

    /// A tenant's profile, as it is now.
    pub async fn profile(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
    ) -> Result<Profile, AskError> {
        Ok(self.inner.register.find(tenant, name).await?.profile.clone())
    }

    /// Whether a profile's provider can be reached and accepts its key. What it says of itself.
    pub async fn health(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
        until: Instant,
    ) -> Result<String, AskError> {
        self.inner.register.find(tenant, name).await?.provider.health(until).await
    }

    /// Has `provider` answer for the profiles of this name, instead of whoever they say: for programs
    /// that bring their own. Holds for what is looked up from now on.
    pub fn answer_for(&self, profile: ProfileName, provider: Arc<dyn Provider>) {
        self.inner.register.stand_in(profile, provider);
    }

    /// Asks, and says what it came to. The records are for whoever asked to write: with the end of
    /// its unit, or by [`Desk::note`].
    pub async fn ask(&self, errand: &Errand, pieces: Option<&mpsc::Sender<Piece>>) -> Settled {
        let first = self.inner.register.find(&errand.tenant, errand.profile.as_ref()).await;
        self.ask_from(first, errand.profile.as_ref(), errand, pieces).await
    }

    /// The same, by a profile that is written elsewhere than in the ledger. Its key is one of the
    /// errand's tenant, as are those it falls back to; the books know it by its name.
    pub async fn ask_by(&self, profile: &Profile, errand: &Errand) -> Settled {
        let first = self.inner.register.written(&errand.tenant, profile).await;
        let name = ProfileName::new(&profile.name).ok();
        self.ask_from(first, name.as_ref(), errand, None).await
    }

    async fn ask_from(
        &self,
        first: Result<Arc<Entry>, AskError>,
        name: Option<&ProfileName>,
        errand: &Errand,
        pieces: Option<&mpsc::Sender<Piece>>,
    ) -> Settled {
        let mut settled = Settled::default();
        let first = match first {
            Ok(entry) => entry,
            Err(error) => {
                self.refused(errand, name, error, &mut settled);
                return settled;
            }
        };
        let desk = &*self.inner;
        CallToMake { desk, entry: &first, errand }.make(pieces, &mut settled).await;
        if !settled.is_final() {
            // In a box: few need it, and all would carry the room for it.
            Box::pin(self.ask_others(&first, errand, pieces, &mut settled)).await;
        }
        settled
    }

    /// Asks the profiles that stand in for one that could not answer.
    async fn ask_others(
        &self,
        first: &Entry,
        errand: &Errand,
        pieces: Option<&mpsc::Sender<Piece>>,
        settled: &mut Settled,
    ) {
        let desk = &*self.inner;
        let mut asked = vec![first.name.clone()];
        // Another model was wished for from the first: it is not one of theirs.
        let question = Question { model: None, ..errand.question.clone() };
        let elsewhere = Errand { question, ..errand.clone() };
        for name in self.fallbacks(errand, first).await {
            if asked.contains(&name) {
                continue;
            }
            match self.inner.register.find(&errand.tenant, Some(&name)).await {
                Ok(entry) => {
                    let call = CallToMake { desk, entry: &entry, errand: &elsewhere };
                    call.make(pieces, settled).await;
                }
                Err(error) => self.refused(errand, Some(&name), error, settled),
            }
            asked.push(name);
            if settled.is_final() {
                break;
            }
        }
    }

    /// Writes what calls came to that no unit's end carries.
    pub async fn note(&self, records: Vec<CallRecord>) {
        self.inner.journal.room().await;
        for record in records {
            self.inner.journal.note(record);
        }
    }

    /// Who is asked in the place of a profile, one after the other.
    async fn fallbacks(&self, errand: &Errand, entry: &Entry) -> Vec<ProfileName> {
        let own = entry.profile.fallback.iter().filter_map(|name| ProfileName::new(name).ok());
        let tenants = self.inner.register.owner(&errand.tenant).await.ok();
        let tenants = tenants.and_then(|owner| owner.sheet.fallback.clone());
        own.chain(tenants).collect()
    }

    /// A question that nobody was asked. Of a profile's own error there is a record all the same.
    fn refused(
        &self,
        errand: &Errand,
        name: Option<&ProfileName>,
        error: AskError,
        settled: &mut Settled,
    ) {
        if !settled.is_untold() {
            tracing::warn!(profile = ?name, %error, "a fallback profile cannot be used");
            return;
        }
        if let Some(name) = name {
            settled.records.push(self.unasked(errand, name, &error));
        }
        settled.result = Err(error);
    }

    /// What the books say of a question that nobody was asked.
    pub(crate) fn unasked(
        &self,
        errand: &Errand,
        name: &ProfileName,
        error: &AskError,
    ) -> CallRecord {
        let call = self.inner.new_call(errand, name, "", "");
        CallRecord { call, end: Some(failed(error, 0, 0)) }
    }
}

impl Inner {
    fn new_call(
        &self,
        errand: &Errand,
        profile: &ProfileName,
        provider: &str,
        model: &str,
    ) -> NewCall {
        NewCall {
            id: CallId::new(),
            request_id: errand.question.request_id.clone(),
            tenant: errand.tenant.clone(),
            profile: profile.clone(),
            provider: provider.to_owned(),
            model: model.to_owned(),
            unit: errand.unit,
            batch: errand.batch.clone(),
            session: errand.session.or_else(|| self.presence.session()),
            worker: self.label.clone(),
            reserve_tokens: 0,
            reserve_picos: 0,
        }
    }
}

/// The end of a call that came to an error.
fn failed(error: &AskError, attempts: u32, latency_ms: u64) -> CallEnd {
    CallEnd {
        status: CallStatus::Error,
        code: Some(error.code.as_str().to_owned()),
        model: String::new(),
        tokens_in: 0,
        tokens_out: 0,
        tokens_cached: 0,
        tokens_cache_write: 0,
        tokens_cache_write_long: 0,
        latency_ms,
        attempts,
        cost_picos: 0,
        estimated: false,
        mode: CallMode::Direct,
        tier: None,
    }
}

/// Whether another profile may do better. Not where the question is wrong, and not where it may have
/// been billed.
fn another_may_help(error: &AskError) -> bool {
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

/// What an answer's call came to.
fn succeeded(answer: &Answer, attempts: u32, latency_ms: u64, cost_picos: i64) -> CallEnd {
    CallEnd {
        status: CallStatus::Success,
        code: None,
        model: answer.model.clone(),
        tokens_in: answer.tokens_in,
        tokens_out: answer.tokens_out,
        tokens_cached: answer.tokens_cached,
        tokens_cache_write: answer.tokens_cache_write + answer.tokens_cache_write_long,
        tokens_cache_write_long: answer.tokens_cache_write_long,
        latency_ms,
        attempts,
        cost_picos,
        estimated: answer.estimated,
        mode: CallMode::Direct,
        tier: answer.tier.clone(),
    }
}
