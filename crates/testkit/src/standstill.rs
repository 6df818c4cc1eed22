//! A store and a ledger that stand still at their n-th verb, before or after it: there a test drops whoever
//! called, as a kill would.

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

use crate::forward::{forward, seam::*};

/// Where the kill comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// The verb was not begun.
    Before,
    /// The verb was done, and nobody heard of it.
    After,
}

/// Counts verbs and stands still at one of them.
#[derive(Debug)]
pub struct Tripwire {
    left: AtomicUsize,
    kill: Kill,
    counts: fn(&str) -> bool,
    /// Somebody stands still.
    pub tripped: Notify,
    /// They go on, as one does who was taken for dead.
    pub let_go: Notify,
}

impl Tripwire {
    /// Stands still at verb number `nth`, from 0, of those that count.
    pub fn at(nth: usize, kill: Kill, counts: fn(&str) -> bool) -> Arc<Self> {
        let (tripped, let_go) = (Notify::new(), Notify::new());
        Arc::new(Self { left: AtomicUsize::new(nth), kill, counts, tripped, let_go })
    }

    /// Whether it came to that verb.
    pub fn is_spent(&self) -> bool {
        self.left.load(Ordering::SeqCst) == usize::MAX
    }

    async fn around<T, F: Future<Output = Result<T>> + Send>(
        &self,
        verb: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        if !(self.counts)(verb) || !self.is_its_turn() {
            return call().await;
        }
        let done = match self.kill {
            Kill::Before => None,
            Kill::After => Some(call().await),
        };
        self.tripped.notify_one();
        self.let_go.notified().await;
        match done {
            Some(answer) => answer,
            None => call().await,
        }
    }

    /// Once: after that, verbs pass.
    fn is_its_turn(&self) -> bool {
        let next = |left: usize| (left != usize::MAX).then(|| left.wrapping_sub(1));
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Ok(0)
    }
}

/// The store of whoever is to be killed.
pub struct StandstillStore {
    inner: Arc<dyn Store>,
    wire: Arc<Tripwire>,
}

impl StandstillStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, wire: Arc<Tripwire>) -> Self {
        Self { inner, wire }
    }

    async fn around<T, F: Future<Output = Result<T>> + Send>(
        &self,
        verb: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        self.wire.around(verb, call).await
    }
}

forward!(StandstillStore);

/// The ledger of whoever is to be killed.
pub struct StandstillLedger {
    inner: Arc<dyn Ledger>,
    wire: Arc<Tripwire>,
}

impl StandstillLedger {
    /// Wraps a ledger.
    pub fn new(inner: Arc<dyn Ledger>, wire: Arc<Tripwire>) -> Self {
        Self { inner, wire }
    }

    async fn around<T, F: Future<Output = Result<T>> + Send>(
        &self,
        verb: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        self.wire.around(verb, call).await
    }
}

forward!(@part StandstillLedger, Profiles {
    put_profile(scope: &Scope, put: PutProfile) -> ProfileRecord;
    remove_profile(scope: &Scope, tenant: &TenantId, name: &ProfileName) -> ();
    profile(scope: &Scope, tenant: &TenantId, name: &ProfileName) -> ProfileRecord;
    profiles(scope: &Scope, after: Option<&str>, limit: u32) -> Page<ProfileRecord>;
    is_suspended(scope: &Scope, tenant: &TenantId) -> bool;
} {});

forward!(@part StandstillLedger, Keys {
    add_key(scope: &Scope, key: NewKey, retires_at: Option<Timestamp>) -> ();
    revoke_key(scope: &Scope, tenant: &TenantId, name: &KeyName, version: Option<u32>) -> ();
    key(scope: &Scope, tenant: &TenantId, name: &KeyName) -> Vec<KeyRecord>;
    keys(scope: &Scope, after: Option<&str>, limit: u32) -> Page<KeyRecord>;
    rewrap_key(scope: &Scope, from: &str, key: NewKey) -> bool;
} {});

forward!(@part StandstillLedger, Calls {
    admit_calls(calls: Vec<NewCall>) -> Vec<Admission>;
    record_calls(records: Vec<CallRecord>) -> ();
    calls(scope: &Scope, filter: &UsageFilter, after: Option<&str>, limit: u32) -> Page<Call>;
    usage(scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Vec<Usage>;
    recost(scope: &Scope, recosts: Vec<Recost>) -> ();
} {});

forward!(@part StandstillLedger, Limits {
    draw(draws: Vec<Draw>) -> Vec<Drawn>;
    put_budget(scope: &Scope, tenant: &TenantId, budget: Option<Budget>) -> BudgetState;
    budget(scope: &Scope, tenant: &TenantId) -> BudgetState;
} {});

forward!(@part StandstillLedger, Replies {
    open_replies(scope: &Scope, tenant: &TenantId, queue: &QueueName, session: SessionId) -> ();
    close_replies(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> ();
    reply(scope: &Scope, unit: NewUnit) -> Option<Sent>;
    replies_open(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> bool;
} {});

forward!(@part StandstillLedger, Parking {
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

forward!(@part StandstillLedger, Tokens {
    add_token(scope: &Scope, token: NewToken) -> TokenRecord;
    revoke_token(scope: &Scope, id: TokenId) -> TokenRecord;
    token(hash: TokenHash) -> Option<TokenRecord>;
    tokens(scope: &Scope) -> Vec<TokenRecord>;
    is_locked() -> bool;
} {});

forward!(@part StandstillLedger, Audit {
    note(deed: NewDeed) -> ();
    deeds(scope: &Scope, after: Option<&str>, limit: u32) -> Page<Deed>;
} {});
