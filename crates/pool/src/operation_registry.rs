//! The operations that workers have reported, and counters of their calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::error::ErrorKind;
use crate::metrics::CallCounter;
use crate::operation::Operation;
use crate::stats::{CallCounters, OperationStats};

/// The operations of a pool. Workers may report others later, when their program was replaced.
pub(crate) struct OperationRegistry {
    pool: String,
    current: RwLock<Option<OperationList>>,
    /// Closures, which share one entry.
    pub(crate) closures: Arc<OperationEntry>,
    /// Calls of unknown operations. They share one counter, because callers choose the names.
    unknown: CallCounter,
}

struct OperationList {
    list: Vec<Operation>,
    entries: HashMap<String, Arc<OperationEntry>>,
}

/// An operation, as calls need it.
pub(crate) struct OperationEntry {
    pub(crate) name: Arc<str>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) idempotent: bool,
    counters: Arc<CallCounters>,
    counter: Arc<CallCounter>,
}

/// The operation name of closures in errors, logs and statistics.
pub(crate) const CLOSURE: &str = "run_blocking";

impl OperationEntry {
    /// The counters of the operation's `former` entry are kept.
    fn new(pool: &str, operation: &Operation, previous: Option<&Self>) -> Self {
        let fresh = || Arc::new(CallCounter::new(pool, &operation.name));
        Self {
            name: operation.name.as_str().into(),
            timeout: operation.timeout_ms,
            idempotent: operation.idempotent,
            counters: previous.map(|entry| Arc::clone(&entry.counters)).unwrap_or_default(),
            counter: previous.map_or_else(fresh, |entry| Arc::clone(&entry.counter)),
        }
    }

    pub(crate) fn count(&self, error: Option<&ErrorKind>) {
        self.counters.count(error);
        self.counter.count(error);
    }
}

impl OperationRegistry {
    pub(crate) fn new(pool: &str) -> Self {
        let unknown = CallCounter::new(pool, "unknown");
        let closures = Arc::new(OperationEntry::new(pool, &Operation::new(CLOSURE), None));
        Self { pool: pool.to_owned(), current: RwLock::default(), closures, unknown }
    }

    /// Replaces the list of operations by what a worker reported.
    pub(crate) fn update(&self, list: Vec<Operation>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| current.list == list) {
            return;
        }
        let previous = current.take().map(|current| current.entries).unwrap_or_default();
        let entry = |operation: &Operation| {
            let previous = previous.get(&operation.name).map(|entry| &**entry);
            (operation.name.clone(), Arc::new(OperationEntry::new(&self.pool, operation, previous)))
        };
        let entries = list.iter().map(entry).collect();
        *current = Some(OperationList { list, entries });
    }

    /// Finds an operation by name; `None` as long as no worker has reported its operations.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Arc<OperationEntry>>, ErrorKind> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let Some(current) = &*current else { return Ok(None) };
        match current.entries.get(name) {
            Some(entry) => Ok(Some(Arc::clone(entry))),
            None => {
                let known = current.list.iter().map(|one| one.name.clone()).collect();
                Err(ErrorKind::UnknownOperation { known })
            }
        }
    }

    /// Whether the operation is idempotent, as far as workers have reported it.
    pub(crate) fn is_idempotent(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(entry)) if entry.idempotent)
    }

    pub(crate) fn count_unknown(&self, error: Option<&ErrorKind>) {
        self.unknown.count(error);
    }

    pub(crate) fn list(&self) -> Vec<Operation> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|current| current.list.clone()).unwrap_or_default()
    }

    pub(crate) fn stats(&self) -> BTreeMap<String, OperationStats> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let entries = current.iter().flat_map(|current| current.entries.values());
        let closures = Some(&self.closures).filter(|entry| entry.counters.read() != Default::default());
        let all = closures.into_iter().chain(entries);
        all.map(|entry| (entry.name.to_string(), entry.counters.read())).collect()
    }
}
