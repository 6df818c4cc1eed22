//! The operations that workers have reported, and counters of their calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::error::ErrorKind;
use crate::metrics::CallMeter;
use crate::operation::Operation;
use crate::stats::{OperationStats, Tally};

/// The operations of a pool. Workers may report others later, when their program was replaced.
pub(crate) struct Known {
    pool: String,
    catalogue: RwLock<Option<Catalogue>>,
    /// Closures, which share one entry.
    pub(crate) closures: Arc<Entry>,
    /// Calls of unknown operations. They share one counter, because callers choose the names.
    unknown: CallMeter,
}

struct Catalogue {
    list: Vec<Operation>,
    entries: HashMap<String, Arc<Entry>>,
}

/// An operation, as calls need it.
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) idempotent: bool,
    tally: Arc<Tally>,
    meter: Arc<CallMeter>,
}

/// The operation name of closures in errors, logs and statistics.
pub(crate) const CLOSURE: &str = "run_blocking";

impl Entry {
    /// The counters of the operation's `former` entry are kept.
    fn new(pool: &str, about: &Operation, former: Option<&Self>) -> Self {
        let fresh = || Arc::new(CallMeter::new(pool, &about.name));
        Self {
            name: about.name.as_str().into(),
            timeout: about.timeout_ms,
            idempotent: about.idempotent,
            tally: former.map(|entry| Arc::clone(&entry.tally)).unwrap_or_default(),
            meter: former.map_or_else(fresh, |entry| Arc::clone(&entry.meter)),
        }
    }

    pub(crate) fn count(&self, error: Option<&ErrorKind>) {
        self.tally.count(error);
        self.meter.count(error);
    }
}

impl Known {
    pub(crate) fn new(pool: &str) -> Self {
        let unknown = CallMeter::new(pool, "unknown");
        let closures = Arc::new(Entry::new(pool, &Operation::new(CLOSURE), None));
        Self { pool: pool.to_owned(), catalogue: RwLock::default(), closures, unknown }
    }

    /// Replaces the list of operations by what a worker reported.
    pub(crate) fn learn(&self, list: Vec<Operation>) {
        let mut catalogue = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        if catalogue.as_ref().is_some_and(|known| known.list == list) {
            return;
        }
        let former = catalogue.take().map(|known| known.entries).unwrap_or_default();
        let entry = |about: &Operation| {
            let former = former.get(&about.name).map(|entry| &**entry);
            (about.name.clone(), Arc::new(Entry::new(&self.pool, about, former)))
        };
        let entries = list.iter().map(entry).collect();
        *catalogue = Some(Catalogue { list, entries });
    }

    /// Finds an operation by name; `None` as long as no worker has reported its operations.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Arc<Entry>>, ErrorKind> {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = &*catalogue else { return Ok(None) };
        match known.entries.get(name) {
            Some(entry) => Ok(Some(Arc::clone(entry))),
            None => {
                let known = known.list.iter().map(|one| one.name.clone()).collect();
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
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        catalogue.as_ref().map(|known| known.list.clone()).unwrap_or_default()
    }

    pub(crate) fn stats(&self) -> BTreeMap<String, OperationStats> {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        let entries = catalogue.iter().flat_map(|known| known.entries.values());
        let closures =
            Some(&self.closures).filter(|entry| entry.tally.read() != Default::default());
        let all = closures.into_iter().chain(entries);
        all.map(|entry| (entry.name.to_string(), entry.tally.read())).collect()
    }
}
