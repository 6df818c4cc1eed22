//! Inference on an in-memory ledger, with scripted profiles.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Call, Calls, Ledger, Limits, ProfileChange, Profiles, PutProfile, UsageFilter};
use longshore::store::{TenantChange, Tenants};
use longshore::{MemoryStore, ProfileName, Scope, TenantId};
use longshore_ai::{Http, Inference, InferenceOutcome, InferenceRequest, Question, Vault};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Inference and its ledger.
pub(crate) struct InferenceFixture {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) inference: Inference,
    _journal: JoinSet<()>,
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

impl InferenceFixture {
    pub(crate) fn new() -> Self {
        Self::on(MemoryStore::default())
    }

    pub(crate) fn on(store: MemoryStore) -> Self {
        let store = Arc::new(store);
        let ledger: Arc<dyn Ledger> = Arc::clone(&store) as _;
        let vault = Arc::new(Vault::new(Arc::clone(&store) as _, None));
        let inference = Inference::new(ledger, vault, Http::new(), "fixture".to_owned());
        let mut journal = JoinSet::new();
        let writer = inference.clone();
        journal.spawn(async move { writer.run_journal().await });
        Self { store, inference, _journal: journal }
    }

    /// Writes or replaces a profile.
    pub(crate) async fn profile(&self, owner: &str, name: &str, body: Value) {
        let put = PutProfile {
            tenant: tenant(owner),
            name: ProfileName::new(name).unwrap(),
            body: Some(body),
            suspended: None,
            expected: None,
        };
        self.store.change_profile(&Scope::All, ProfileChange::Put(put)).await.unwrap();
        self.inference.clear_cache();
    }

    /// A profile that answers by a script.
    pub(crate) async fn scripted(&self, owner: &str, name: &str, script: &str, more: Value) {
        let mut body = json!({
            "provider": "scripted", "model": name, "script": script,
            "prices": { "input": 1, "output": 10 },
        });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        self.profile(owner, name, body).await;
    }

    /// Suspends or resumes a tenant. The cache is not notified.
    pub(crate) async fn suspend(&self, owner: &str, suspended: bool) {
        let change = TenantChange { suspended: Some(suspended), ..TenantChange::default() };
        self.store.put_tenant(&Scope::All, &tenant(owner), change).await.unwrap();
    }

    pub(crate) async fn ask(&self, owner: &str, profile: &str, prompt: &str) -> InferenceOutcome {
        self.inference.ask(&request(owner, profile, prompt), None).await
    }

    /// All call records, oldest first.
    pub(crate) async fn calls(&self) -> Vec<Call> {
        self.inference.flush_journal().await;
        let filter = UsageFilter::default();
        let mut calls = self.store.calls(&Scope::All, &filter, None, 1000).await.unwrap().items;
        calls.reverse();
        calls
    }

    /// The same, once there are so many and all have ended.
    pub(crate) async fn ended_calls(&self, count: usize) -> Vec<Call> {
        let ended = async {
            loop {
                let calls = self.calls().await;
                if calls.len() >= count && calls.iter().all(|call| call.end.is_some()) {
                    return calls;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ended).await.expect("a call stays open")
    }

    pub(crate) async fn reserved(&self, owner: &str) -> (u64, i64) {
        let month = self.store.budget(&Scope::All, &tenant(owner)).await.unwrap();
        (month.reserved_tokens, month.reserved_picos)
    }
}

/// A question with a deadline in one minute.
pub(crate) fn request(owner: &str, profile: &str, prompt: &str) -> InferenceRequest {
    let until = Instant::now() + Duration::from_secs(60);
    let question = Question { max_tokens: 100, ..Question::new(prompt, prompt, until) };
    InferenceRequest::new(tenant(owner), Some(ProfileName::new(profile).unwrap()), question)
}
