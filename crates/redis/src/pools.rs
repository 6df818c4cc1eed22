//! Pools that this process has met: their keys, and their birth as it was seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::permits::{Done, Job};
use longshore_core::{Gather, PoolName};

/// The names of all pools, for whoever wants a list.
pub(crate) const ALL: &str = "longshore:pools";

/// So many calls of a pool are on their way: while one is answered the server has another.
const LANES: usize = 2;

/// One pool.
#[derive(Debug)]
pub(crate) struct Known {
    /// In one slot of a cluster, by the part in braces.
    pub(crate) keys: [String; 3],
    /// What is asked of it while something is on its way.
    pub(crate) jobs: Arc<Gather<Job, Done>>,
    /// Empty until it was seen.
    born: Mutex<String>,
}

impl Known {
    fn new(pool: &PoolName) -> Self {
        let keys = ["pool", "ends", "line"].map(|part| key(pool, part));
        Self { keys, jobs: Arc::new(Gather::in_order(LANES)), born: Mutex::default() }
    }

    /// The pool's birth as we know it.
    pub(crate) fn born(&self) -> String {
        self.born.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this is another birth than we knew of.
    pub(crate) fn is_news(&self, born: &str) -> bool {
        *self.born.lock().unwrap_or_else(PoisonError::into_inner) != born
    }

    /// Remembers it.
    pub(crate) fn remember(&self, born: String) {
        *self.born.lock().unwrap_or_else(PoisonError::into_inner) = born;
    }
}

/// One of a pool's keys. Names have no braces.
fn key(pool: &PoolName, part: &str) -> String {
    format!("{{longshore:pool:{pool}}}:{part}")
}

/// The key of one of its alerts.
pub(crate) fn alert_key(pool: &PoolName, alert: &str) -> String {
    key(pool, &format!("alert:{alert}"))
}

/// The key that a pool is there by.
pub(crate) fn pool_key(pool: &PoolName) -> String {
    key(pool, "pool")
}

/// All that this process has met.
#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<HashMap<PoolName, Arc<Known>>>);

impl Pools {
    /// Finds or makes it.
    pub(crate) fn known(&self, pool: &PoolName) -> Arc<Known> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.get(pool) {
            return Arc::clone(known);
        }
        let known = Arc::new(Known::new(pool));
        pools.insert(pool.clone(), Arc::clone(&known));
        known
    }
}
