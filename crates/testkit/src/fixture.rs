//! The fixture of a conformance case: a fresh store and the clock it reads.

use std::any::Any;
use std::sync::Arc;

use longshore_accounts::Ledger;
use longshore_core::{Clock, Store, Timestamp};

use crate::ManualClock;

/// A fresh, empty store and the clock it reads.
#[derive(Clone)]
pub struct StoreFixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same store as a ledger. [`wrap_store`](Self::wrap_store) does not wrap it.
    pub ledger: Arc<dyn Ledger>,
    /// The clock that the store reads.
    pub clock: Arc<ManualClock>,
    guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl StoreFixture {
    /// Wraps an empty store that reads `clock`.
    pub fn new<S: Store + Ledger>(store: Arc<S>, clock: Arc<ManualClock>) -> Self {
        Self { ledger: Arc::clone(&store) as Arc<dyn Ledger>, store, clock, guard: None }
    }

    /// Keeps a value alive as long as the fixture, such as the store's temporary directory.
    #[must_use]
    pub fn with_guard(self, value: impl Any + Send + Sync) -> Self {
        Self { guard: Some(Arc::new((self.guard, value))), ..self }
    }

    /// Replaces the store with a wrapper around it.
    #[must_use]
    pub fn wrap_store(self, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        Self { store: wrap(self.store), ..self }
    }

    /// The current time of the fixture's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A fixture with access to the SQL database of its store.
pub trait SqlStoreFixture: Send + Sync {
    /// The fixture without SQL.
    fn fixture(&self) -> &StoreFixture;

    /// Runs statements on the store's database.
    fn execute(&self, sql: &str);

    /// Runs a query on the store's database that returns one number.
    fn query_i64(&self, sql: &str) -> i64;
}
