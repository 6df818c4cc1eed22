//! Wrappers of a store and a ledger that block before or after their n-th call. A test drops the blocked
//! caller, which has the effect of a kill at that point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_accounts::{
    Admission, Audit, Budget, BudgetState, Call, CallRecord, Calls, Deed, Draw, Drawn, KeyChange,
    KeyRecord, Keys, Ledger, Limits, NewCall, NewDeed, Parked, ParkedCounts, Parking,
    PendingChange, PendingFilter, ProfileChange, ProfileRecord, Profiles, ProviderBatchChange,
    Recost, Shipment, TokenChange, TokenHash, TokenRecord, Tokens, Usage, UsageBy, UsageFilter,
};
use longshore_core::Store;
use longshore_core::store::Replies;
use longshore_core::{KeyName, ProfileName};
use tokio::sync::Notify;

use crate::delegate::{delegate, store_types::*};

/// Whether the crash comes before or after the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// The store did not execute the call.
    Before,
    /// The store executed the call, and the caller got no answer.
    After,
}

/// Counts calls and blocks one of them.
#[derive(Debug)]
pub struct Tripwire {
    left: AtomicUsize,
    kill: Kill,
    counts: fn(&str) -> bool,
    /// Notified when the call is blocked.
    pub tripped: Notify,
    /// Notify it to unblock the call, as for a worker that was only believed dead.
    pub let_go: Notify,
}

impl Tripwire {
    /// Blocks call number `nth`, from 0, of the methods for which `counts` returns true.
    pub fn at(nth: usize, kill: Kill, counts: fn(&str) -> bool) -> Arc<Self> {
        let (tripped, let_go) = (Notify::new(), Notify::new());
        Arc::new(Self { left: AtomicUsize::new(nth), kill, counts, tripped, let_go })
    }

    /// Whether that call was reached.
    pub fn is_spent(&self) -> bool {
        self.left.load(Ordering::SeqCst) == usize::MAX
    }

    async fn wrap_call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        method: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        if !(self.counts)(method) || !self.is_crash_point() {
            return call().await;
        }
        let result = match self.kill {
            Kill::Before => None,
            Kill::After => Some(call().await),
        };
        self.tripped.notify_one();
        self.let_go.notified().await;
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
pub struct StandstillStore {
    inner: Arc<dyn Store>,
    crash_point: Arc<Tripwire>,
}

impl StandstillStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, crash_point: Arc<Tripwire>) -> Self {
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

delegate!(StandstillStore);

/// The ledger of the worker to be killed.
pub struct StandstillLedger {
    inner: Arc<dyn Ledger>,
    crash_point: Arc<Tripwire>,
}

impl StandstillLedger {
    /// Wraps a ledger.
    pub fn new(inner: Arc<dyn Ledger>, crash_point: Arc<Tripwire>) -> Self {
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

delegate!(@trait StandstillLedger, Profiles {
    change_profile(scope: &Scope, change: ProfileChange) -> ProfileRecord;
    profiles(
        scope: &Scope, name: Option<ProfileName>, after: Option<&str>, limit: u32
    ) -> Page<ProfileRecord>;
} {});

delegate!(@trait StandstillLedger, Keys {
    change_key(scope: &Scope, change: KeyChange) -> bool;
    keys(
        scope: &Scope, name: Option<KeyName>, after: Option<&str>, limit: u32
    ) -> Page<KeyRecord>;
} {});

delegate!(@trait StandstillLedger, Calls {
    admit_calls(calls: Vec<NewCall>) -> Vec<Admission>;
    record_calls(records: Vec<CallRecord>) -> ();
    calls(scope: &Scope, filter: &UsageFilter, after: Option<&str>, limit: u32) -> Page<Call>;
    usage(scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Vec<Usage>;
    recost(scope: &Scope, recosts: Vec<Recost>) -> ();
} {});

delegate!(@trait StandstillLedger, Limits {
    draw(draws: Vec<Draw>) -> Vec<Drawn>;
    put_budget(scope: &Scope, tenant: &TenantId, budget: Option<Budget>) -> BudgetState;
    budget(scope: &Scope, tenant: &TenantId) -> BudgetState;
} {});

delegate!(@trait StandstillLedger, Replies {
    assign_reply_queue(
        scope: &Scope, tenant: &TenantId, queue: &QueueName, session: Option<SessionId>
    ) -> ();
    reply(scope: &Scope, unit: NewUnit) -> Option<Sent>;
} {});

delegate!(@trait StandstillLedger, Parking {
    change_pending(batch: &BatchId, change: PendingChange) -> Vec<UnitId>;
    pending_requests(batch: &BatchId, filter: &PendingFilter, limit: u32) -> Vec<Parked>;
    provider_batches(batch: &BatchId) -> (Vec<Shipment>, ParkedCounts);
    change_provider_batch(batch: &BatchId, mark: &str, change: ProviderBatchChange) -> ();
} {});

delegate!(@trait StandstillLedger, Tokens {
    change_token(scope: &Scope, change: TokenChange) -> TokenRecord;
    tokens(scope: &Scope, hash: Option<TokenHash>, limit: u32) -> Vec<TokenRecord>;
} {});

delegate!(@trait StandstillLedger, Audit {
    note(deed: NewDeed) -> ();
    deeds(scope: &Scope, after: Option<&str>, limit: u32) -> Page<Deed>;
} {});

delegate!(@trait StandstillLedger, Tenants {
    put_tenant(scope: &Scope, id: &TenantId, change: TenantChange) -> Tenant;
    remove_tenant(scope: &Scope, id: &TenantId) -> ();
    tenants(scope: &Scope) -> Vec<Tenant>;
} {});
