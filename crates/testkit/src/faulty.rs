//! A store wrapper that fails, delays or repeats planned calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::{Error, Store};

use crate::delegate::{assert_known, delegate, store_types::*};

/// A fault injected into one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The call returns a retryable error and does not reach the store.
    FailBefore,
    /// The store executes the call, and its answer is lost: the caller gets a retryable error.
    FailAfter,
    /// The call does not reach the store and returns `Error::Broken`, which is not retryable.
    BrokenStream,
    /// The call does not reach the store and returns `Error::TimedOut`.
    TimeOut,
    /// The call reaches the store after this delay.
    Delay(Duration),
    /// The store executes the call at once, and its answer arrives after this delay.
    DelayReply(Duration),
    /// The call reaches the store twice; the caller gets the second answer.
    Duplicate,
}

/// Injects planned faults; passes all other calls on.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
}

/// Chooses the fault of a call by its method.
type FaultSource = dyn FnMut(&'static str) -> Option<Fault> + Send;

#[derive(Default)]
struct Plan {
    faults: BTreeMap<(&'static str, u64), Fault>,
    always: BTreeMap<&'static str, Fault>,
    outage: bool,
    source: Option<Box<FaultSource>>,
    calls: BTreeMap<&'static str, u64>,
}

impl FaultyStore {
    /// Wraps a store, without faults.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    /// Plans a fault for call number `nth` of `method`, counted from 1.
    #[must_use]
    pub fn with_fault(self, method: &'static str, nth: u64, fault: Fault) -> Self {
        assert_known(method, &[Self::METHODS]);
        self.plan(|plan| plan.faults.insert((method, nth), fault));
        self
    }

    /// Injects a fault into every call of `method` from now on; `None` ends that.
    pub fn set_default_fault(&self, method: &'static str, fault: Option<Fault>) {
        assert_known(method, &[Self::METHODS]);
        self.plan(|plan| match fault {
            Some(fault) => plan.always.insert(method, fault),
            None => plan.always.remove(method),
        });
    }

    /// Lets `source` choose the fault of each call without a planned one; `None` ends that.
    pub fn set_fault_source(&self, source: Option<Box<FaultSource>>) {
        self.plan(|plan| plan.source = source);
    }

    /// While true, every call fails as with [`Fault::FailBefore`].
    pub fn set_outage(&self, on: bool) {
        self.plan(|plan| plan.outage = on);
    }

    /// How often a method was called, failed calls included.
    pub fn calls(&self, method: &str) -> u64 {
        assert_known(method, &[Self::METHODS]);
        self.plan(|plan| plan.calls.get(method).copied().unwrap_or(0))
    }

    fn plan<T>(&self, access: impl FnOnce(&mut Plan) -> T) -> T {
        access(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn next_fault(&self, method: &'static str) -> Option<Fault> {
        self.plan(|plan| {
            let count = plan.calls.entry(method).or_default();
            *count += 1;
            let nth = *count;
            let outage = plan.outage.then_some(Fault::FailBefore);
            let planned = plan.faults.get(&(method, nth)).or_else(|| plan.always.get(method)).copied();
            outage.or(planned).or_else(|| plan.source.as_mut().and_then(|source| source(method)))
        })
    }

    async fn wrap_call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        method: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        let unavailable = |when: &str| Error::unavailable(format!("injected fault: {method} failed {when}"));
        match self.next_fault(method) {
            None => call().await,
            Some(Fault::FailBefore) => Err(unavailable("before the call")),
            Some(Fault::TimeOut) => Err(Error::timed_out(format!("injected fault: {method} took too long"))),
            Some(Fault::BrokenStream) => {
                let message = format!("injected fault: {method} is broken");
                Err(Error::Broken { message, source: None })
            }
            Some(Fault::FailAfter) => {
                call().await?;
                Err(unavailable("after the call"))
            }
            Some(Fault::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                call().await
            }
            Some(Fault::DelayReply(delay)) => {
                let answer = call().await;
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Fault::Duplicate) => {
                call().await?;
                call().await
            }
        }
    }
}

delegate!(FaultyStore);
