//! Wrappers of a store and a ledger that block before or after their n-th call. A test drops the blocked
//! caller, which has the effect of a kill at that point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_core::Store;
use longshore_core::ledger::{
    Admission, Audit, Budget, BudgetState, Call, CallRecord, Calls, Deed, Delivery, Draw, Drawn,
    KeyRecord, Keys, Ledger, Limits, NewCall, NewDeed, NewKey, NewParked, NewToken, Parked,
    ParkedCounts, Parking, ProfileRecord, Profiles, PutProfile, Recost, Replies, Return, Shipment,
    Standing, TokenHash, TokenRecord, Tokens, Usage, UsageBy, UsageFilter,
};
use longshore_core::{KeyName, ProfileName, TokenId};
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
    put_profile(scope: &Scope, put: PutProfile) -> ProfileRecord;
    remove_profile(scope: &Scope, tenant: &TenantId, name: &ProfileName) -> ();
    profile(scope: &Scope, tenant: &TenantId, name: &ProfileName) -> ProfileRecord;
    profiles(scope: &Scope, after: Option<&str>, limit: u32) -> Page<ProfileRecord>;
    is_suspended(scope: &Scope, tenant: &TenantId) -> bool;
} {});

delegate!(@trait StandstillLedger, Keys {
    add_key(scope: &Scope, key: NewKey, retires_at: Option<Timestamp>) -> ();
    revoke_key(scope: &Scope, tenant: &TenantId, name: &KeyName, version: Option<u32>) -> ();
    key(scope: &Scope, tenant: &TenantId, name: &KeyName) -> Vec<KeyRecord>;
    keys(scope: &Scope, after: Option<&str>, limit: u32) -> Page<KeyRecord>;
    rewrap_key(scope: &Scope, from: &str, key: NewKey) -> bool;
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
    open_replies(scope: &Scope, tenant: &TenantId, queue: &QueueName, session: SessionId) -> ();
    close_replies(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> ();
    reply(scope: &Scope, unit: NewUnit) -> Option<Sent>;
    replies_open(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> bool;
} {});

delegate!(@trait StandstillLedger, Parking {
    park(batch: &BatchId, items: Vec<NewParked>) -> ();
    waiting(batch: &BatchId, limit: u32) -> Vec<Parked>;
    seal(batch: &BatchId, mark: &str, ids: Vec<String>) -> ();
    shipments(batch: &BatchId) -> Vec<Shipment>;
    contents(batch: &BatchId, mark: &str) -> Vec<Parked>;
    ship(batch: &BatchId, mark: &str, ticket: &str) -> ();
    deliver(batch: &BatchId, deliveries: Vec<Delivery>) -> Vec<UnitId>;
    close_shipment(batch: &BatchId, mark: &str, how: Return) -> ();
    standing(batch: &BatchId, custom_id: &str) -> Standing;
    answered(batch: &BatchId, limit: u32) -> Vec<(Parked, Payload)>;
    parked(batch: &BatchId) -> ParkedCounts;
    unpark(batch: &BatchId, custom_id: &str) -> ();
} {});

delegate!(@trait StandstillLedger, Tokens {
    add_token(scope: &Scope, token: NewToken) -> TokenRecord;
    revoke_token(scope: &Scope, id: TokenId) -> TokenRecord;
    token(hash: TokenHash) -> Option<TokenRecord>;
    tokens(scope: &Scope) -> Vec<TokenRecord>;
    is_locked() -> bool;
} {});

delegate!(@trait StandstillLedger, Audit {
    note(deed: NewDeed) -> ();
    deeds(scope: &Scope, after: Option<&str>, limit: u32) -> Page<Deed>;
} {});
