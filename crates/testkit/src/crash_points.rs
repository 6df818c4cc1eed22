//! Wrappers of a store and a ledger that block before or after their n-th call. A test drops the blocked
//! caller, which has the effect of a kill at that point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_accounts::{
    AuditEntry, AuditLog, BucketRequest, Budget, BudgetState, Call, CallAdmission, CallRecord, Calls,
    CostCorrection, DrawResult, KeyChange, KeyRecord, Keys, Ledger, Limits, NewAuditEntry, NewCall,
    PendingChange, PendingCounts, PendingFilter, PendingRequest, PendingRequests, ProfileChange,
    ProfileRecord, Profiles, ProviderBatch, ProviderBatchChange, TokenChange, TokenHash, TokenRecord, Tokens,
    Usage, UsageBy, UsageFilter,
};
use longshore_core::Store;
use longshore_core::store::{OpenReplyQueue, ReplyQueues};
use longshore_core::{KeyName, ProfileName};
use tokio::sync::Notify;

use crate::delegate::{assert_known, delegate, store_types::*};

/// Whether the crash comes before or after the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashTiming {
    /// The store did not execute the call.
    Before,
    /// The store executed the call, and the caller got no answer.
    After,
}

/// Counts calls and blocks one of them.
#[derive(Debug)]
pub struct CrashPoint {
    left: AtomicUsize,
    kill: CrashTiming,
    methods: &'static [&'static str],
    /// Notified when the call is blocked.
    pub reached: Notify,
    /// Notify it to unblock the call, as for a worker that was only believed dead.
    pub resume: Notify,
}

impl CrashPoint {
    /// Blocks call number `nth`, from 0, of these methods, counted together.
    pub fn at(nth: usize, kill: CrashTiming, methods: &'static [&'static str]) -> Arc<Self> {
        for method in methods {
            assert_known(method, &[CrashPointStore::METHODS, CrashPointLedger::METHODS]);
        }
        let left = AtomicUsize::new(nth);
        Arc::new(Self { left, kill, methods, reached: Notify::new(), resume: Notify::new() })
    }

    /// Whether that call was reached.
    pub fn was_reached(&self) -> bool {
        self.left.load(Ordering::SeqCst) == usize::MAX
    }

    async fn wrap_call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        method: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        if !self.methods.contains(&method) || !self.is_crash_point() {
            return call().await;
        }
        let result = match self.kill {
            CrashTiming::Before => None,
            CrashTiming::After => Some(call().await),
        };
        self.reached.notify_one();
        self.resume.notified().await;
        match result {
            Some(answer) => answer,
            None => call().await,
        }
    }

    /// True for one call only.
    fn is_crash_point(&self) -> bool {
        let decrement = |left: usize| (left != usize::MAX).then(|| left.wrapping_sub(1));
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement) == Ok(0)
    }
}

/// The store of the worker to be killed.
pub struct CrashPointStore {
    inner: Arc<dyn Store>,
    crash_point: Arc<CrashPoint>,
}

impl CrashPointStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, crash_point: Arc<CrashPoint>) -> Self {
        Self { inner, crash_point }
    }

    async fn wrap_call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        method: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        self.crash_point.wrap_call(method, call).await
    }
}

delegate!(CrashPointStore);

/// The ledger of the worker to be killed.
pub struct CrashPointLedger {
    inner: Arc<dyn Ledger>,
    crash_point: Arc<CrashPoint>,
}

impl CrashPointLedger {
    /// Wraps a ledger.
    pub fn new(inner: Arc<dyn Ledger>, crash_point: Arc<CrashPoint>) -> Self {
        Self { inner, crash_point }
    }

    async fn wrap_call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        method: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        self.crash_point.wrap_call(method, call).await
    }
}

delegate!(CrashPointLedger: Profiles {
    change_profile(scope: &Scope, change: ProfileChange) -> ProfileRecord;
    profiles(
        scope: &Scope, name: Option<ProfileName>, after: Option<&str>, limit: u32
    ) -> Page<ProfileRecord>;
} Keys {
    change_key(scope: &Scope, change: KeyChange) -> bool;
    keys(
        scope: &Scope, name: Option<KeyName>, after: Option<&str>, limit: u32
    ) -> Page<KeyRecord>;
} Calls {
    admit_calls(calls: Vec<NewCall>) -> Vec<CallAdmission>;
    record_calls(records: Vec<CallRecord>) -> ();
    calls(scope: &Scope, filter: &UsageFilter, after: Option<&str>, limit: u32) -> Page<Call>;
    usage(scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Vec<Usage>;
    correct_costs(scope: &Scope, corrections: Vec<CostCorrection>) -> ();
} Limits {
    draw(draws: Vec<BucketRequest>) -> Vec<DrawResult>;
    put_budget(scope: &Scope, tenant: &TenantId, budget: Option<Budget>) -> BudgetState;
    budget(scope: &Scope, tenant: &TenantId) -> BudgetState;
} ReplyQueues {
    assign_reply_queue(
        scope: &Scope, tenant: &TenantId, queue: &QueueName, session: Option<SessionId>
    ) -> ();
    reply_queues(
        scope: &Scope, tenant: &TenantId, queue: Option<QueueName>
    ) -> Vec<OpenReplyQueue>;
    send_reply(
        scope: &Scope, unit: NewUnit, reader: Option<SessionId>
    ) -> Option<SendResult>;
} PendingRequests {
    change_pending(batch: &BatchId, change: PendingChange) -> Vec<UnitId>;
    pending_requests(batch: &BatchId, filter: &PendingFilter, limit: u32) -> Vec<PendingRequest>;
    provider_batches(batch: &BatchId) -> (Vec<ProviderBatch>, PendingCounts);
    change_provider_batch(batch: &BatchId, mark: &str, change: ProviderBatchChange) -> ();
} Tokens {
    change_token(scope: &Scope, change: TokenChange) -> TokenRecord;
    tokens(scope: &Scope, hash: Option<TokenHash>, limit: u32) -> Vec<TokenRecord>;
} AuditLog {
    append(entry: NewAuditEntry) -> ();
    audit_entries(scope: &Scope, after: Option<&str>, limit: u32) -> Page<AuditEntry>;
} Tenants {
    put_tenant(scope: &Scope, id: &TenantId, change: TenantChange) -> Tenant;
    remove_tenant(scope: &Scope, id: &TenantId) -> ();
    tenants(scope: &Scope) -> Vec<Tenant>;
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no wrapped method is called `fnish`")]
    fn a_crash_point_at_a_method_that_does_not_exist_fails_at_once() {
        CrashPoint::at(0, CrashTiming::Before, &["send_reply", "fnish"]);
    }
}
