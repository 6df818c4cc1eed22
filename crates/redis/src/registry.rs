//! The pools that this process has used: their keys and creation times.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::permits::{PermitReply, PermitRequest};
use longshore_core::{Coalescer, PoolName};

/// The set with the names of all pools.
pub(crate) const POOL_NAMES_KEY: &str = "longshore:pools";

/// Concurrent calls per pool: while one is being replied to, the server runs another.
const MAX_IN_FLIGHT: usize = 2;

/// One pool.
#[derive(Debug)]
pub(crate) struct PoolEntry {
    /// All in one cluster slot, by the part in braces.
    pub(crate) keys: [String; 3],
    /// Coalesces the requests to this pool.
    pub(crate) jobs: Arc<Coalescer<PermitRequest, PermitReply>>,
    /// Empty until the first reply.
    created_at: Mutex<String>,
}

impl PoolEntry {
    fn new(pool: &PoolName) -> Self {
        let keys = ["pool", "ends", "line"].map(|part| key(pool, part));
        Self { keys, jobs: Arc::new(Coalescer::pipelined(MAX_IN_FLIGHT)), created_at: Mutex::default() }
    }

    /// The pool's creation time as this process knows it.
    pub(crate) fn created_at(&self) -> String {
        self.created_at.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the pool was created again since, or is not known yet.
    pub(crate) fn is_new(&self, created_at: &str) -> bool {
        *self.created_at.lock().unwrap_or_else(PoisonError::into_inner) != created_at
    }

    /// Stores the creation time.
    pub(crate) fn set_created_at(&self, created_at: String) {
        *self.created_at.lock().unwrap_or_else(PoisonError::into_inner) = created_at;
    }
}

/// One of a pool's keys. Pool names have no braces.
fn key(pool: &PoolName, part: &str) -> String {
    format!("{{longshore:pool:{pool}}}:{part}")
}

/// The key of an alert.
pub(crate) fn alert_key(pool: &PoolName, alert: &str) -> String {
    key(pool, &format!("alert:{alert}"))
}

/// The key of the pool's hash, which exists as long as the pool.
pub(crate) fn pool_key(pool: &PoolName) -> String {
    key(pool, "pool")
}

/// All pools that this process has used.
#[derive(Debug, Default)]
pub(crate) struct PoolRegistry(Mutex<HashMap<PoolName, Arc<PoolEntry>>>);

impl PoolRegistry {
    /// Finds or adds a pool.
    pub(crate) fn entry(&self, pool: &PoolName) -> Arc<PoolEntry> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = pools.get(pool) {
            return Arc::clone(entry);
        }
        let entry = Arc::new(PoolEntry::new(pool));
        pools.insert(pool.clone(), Arc::clone(&entry));
        entry
    }
}
