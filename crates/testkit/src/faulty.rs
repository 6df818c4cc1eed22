//! A store that fails, delays or doubles the calls that a plan names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::{Error, Store};

use crate::forward::{forward, seam::*};

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It never reaches the store.
    FailBefore,
    /// It is done, but its answer is lost.
    FailAfter,
    /// It never reaches the store, which says that it is broken: no error to be retried.
    Broken,
    /// It arrives late.
    Delay(Duration),
    /// It arrives twice; the second answer is the one that is heard.
    Duplicate,
}

/// Breaks the calls that its plan names; the others pass.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    faults: BTreeMap<(&'static str, u64), Fault>,
    always: BTreeMap<&'static str, Fault>,
    outage: bool,
    calls: BTreeMap<&'static str, u64>,
}

impl FaultyStore {
    /// Wraps a store; until something is planned all calls pass.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    /// Breaks call number `nth` (from 1, counted from the beginning) of `verb`.
    #[must_use]
    pub fn with(self, verb: &'static str, nth: u64, fault: Fault) -> Self {
        self.plan(|plan| plan.faults.insert((verb, nth), fault));
        self
    }

    /// Breaks every call of `verb` from now on; `None` mends it.
    pub fn always(&self, verb: &'static str, fault: Option<Fault>) {
        self.plan(|plan| match fault {
            Some(fault) => plan.always.insert(verb, fault),
            None => plan.always.remove(verb),
        });
    }

    /// While true, no call of any verb reaches the store.
    pub fn outage(&self, on: bool) {
        self.plan(|plan| plan.outage = on);
    }

    /// How often a verb was called, broken calls included.
    pub fn calls(&self, verb: &str) -> u64 {
        self.plan(|plan| plan.calls.get(verb).copied().unwrap_or(0))
    }

    fn plan<T>(&self, look: impl FnOnce(&mut Plan) -> T) -> T {
        look(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn next_fault(&self, verb: &'static str) -> Option<Fault> {
        self.plan(|plan| {
            let count = plan.calls.entry(verb).or_default();
            *count += 1;
            let nth = *count;
            let outage = plan.outage.then_some(Fault::FailBefore);
            let planned = || plan.faults.get(&(verb, nth)).or_else(|| plan.always.get(verb));
            outage.or_else(|| planned().copied())
        })
    }

    async fn around<T, F: Future<Output = Result<T>> + Send>(
        &self,
        verb: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        let lost = |when: &str| Error::unavailable(format!("{verb} was made to fail {when}"));
        match self.next_fault(verb) {
            None => call().await,
            Some(Fault::FailBefore) => Err(lost("before it was done")),
            Some(Fault::Broken) => {
                let message = format!("{verb} was made to break");
                Err(Error::Broken { message, source: None })
            }
            Some(Fault::FailAfter) => {
                call().await?;
                Err(lost("after it was done"))
            }
            Some(Fault::Delay(by)) => {
                tokio::time::sleep(by).await;
                call().await
            }
            Some(Fault::Duplicate) => {
                call().await?;
                call().await
            }
        }
    }
}

forward!(FaultyStore);
