//! What a conformance case is given: a fresh store and the clock it reads.

use std::any::Any;
use std::sync::Arc;

use longshore_core::{Clock, Ledger, Store, Timestamp};

use crate::ManualClock;

/// A fresh, empty store and the clock it reads.
#[derive(Clone)]
pub struct World {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same store as a ledger. Wrapping the store leaves this one bare.
    pub ledger: Arc<dyn Ledger>,
    /// Its clock.
    pub clock: Arc<ManualClock>,
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

impl World {
    /// A world around an empty store that reads `clock`.
    pub fn new<S: Store + Ledger>(store: Arc<S>, clock: Arc<ManualClock>) -> Self {
        Self { ledger: Arc::clone(&store) as Arc<dyn Ledger>, store, clock, keep: None }
    }

    /// Keeps something alive as long as the world, as the store's temporary directory.
    #[must_use]
    pub fn keeping(self, thing: impl Any + Send + Sync) -> Self {
        Self { keep: Some(Arc::new((self.keep, thing))), ..self }
    }

    /// The same world with its store wrapped.
    #[must_use]
    pub fn wrapped(self, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        Self { store: wrap(self.store), ..self }
    }

    /// The time in this world.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A world whose store keeps its units in an SQL database that cases may use too.
pub trait SqlWorld: Send + Sync {
    /// The world.
    fn world(&self) -> &World;

    /// Runs statements on the store's own database.
    fn execute(&self, sql: &str);

    /// Asks the store's own database for one number.
    fn query_i64(&self, sql: &str) -> i64;
}
