//! Operations: named functions of a worker, with the state that the worker keeps between calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::PoolCall;
use crate::error::{BoxError, ErrorKind, OperationError};
use crate::payload::{CallPayload, Form};

#[cfg(feature = "typed")]
mod typed;

/// An operation, as a worker reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its name; by convention `topic.verb`.
    pub name: String,
    /// What it does, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its timeout, if the caller sets none.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    pub timeout_ms: Option<Duration>,
    /// Running it twice has the same effect as once: if a worker dies, its call is retried.
    #[serde(default)]
    pub idempotent: bool,
    /// The JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
    /// The JSON Schema of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
}

impl Operation {
    /// An operation by name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            timeout_ms: None,
            idempotent: false,
            arguments: None,
            result: None,
        }
    }

    /// What it does, for people.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Its timeout, if the caller sets none.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout_ms = Some(limit);
        self
    }

    /// Running it twice has the same effect as once: if a worker dies, its call is retried, once.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

impl From<&str> for Operation {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The operations of a pool. Shared by all workers; each opens its own [`Operator`].
pub trait OperationSet: Send + Sync + 'static {
    /// The operations.
    fn list(&self) -> Vec<Operation>;

    /// Creates a worker's state. Called where the worker runs: on its thread, or in its process.
    fn open(&self) -> Result<Box<dyn Operator>, OperationError>;
}

/// Performs calls with the state of one worker.
pub trait Operator {
    /// Performs one call.
    fn perform(&mut self, call: &PoolCall, arguments: CallPayload) -> Result<CallPayload, OperationError>;

    /// Called when the worker stops gracefully; not after a crash.
    fn close(&mut self) {}
}

/// Operations written in Rust over a state `S` that each worker creates for itself.
///
/// ```
/// use longshore_pool::{PoolCall, Operations};
///
/// let operations = Operations::new(|| Ok(0_u64))
///     .add("count", |seen: &mut u64, step: u64| {
///         *seen += step;
///         Ok::<_, String>(*seen)
///     });
/// ```
pub struct Operations<S = ()> {
    init: Arc<dyn Fn() -> Result<S, BoxError> + Send + Sync>,
    cleanup: Option<Cleanup<S>>,
    entries: BTreeMap<String, RegisteredOperation<S>>,
}

struct RegisteredOperation<S> {
    about: Operation,
    run: OperationFn<S>,
}

type Cleanup<S> = Arc<dyn Fn(&mut S) + Send + Sync>;

type OperationFn<S> =
    Arc<dyn Fn(&mut S, &PoolCall, CallPayload) -> Result<CallPayload, OperationError> + Send + Sync>;

impl Operations<()> {
    /// Operations without a state.
    pub fn stateless() -> Self {
        Self::new(|| Ok(()))
    }
}

impl<S: 'static> Operations<S> {
    /// Operations over the state that `init` creates for each worker. `noop` and `echo` are always
    /// included.
    pub fn new(init: impl Fn() -> Result<S, BoxError> + Send + Sync + 'static) -> Self {
        let empty = Self { init: Arc::new(init), cleanup: None, entries: BTreeMap::new() };
        let noop = Operation::new("noop").description("Does nothing.").idempotent();
        let echo = Operation::new("echo").description("Gives back its arguments.").idempotent();
        empty.add_raw(noop, |_, _, _| Ok(CallPayload::null())).add_raw(echo, |_, _, arguments| Ok(arguments))
    }

    /// Sets what a worker does with its state when it stops gracefully.
    #[must_use]
    pub fn cleanup(mut self, end: impl Fn(&mut S) + Send + Sync + 'static) -> Self {
        self.cleanup = Some(Arc::new(end));
        self
    }

    /// Adds an operation on raw bytes: nothing is parsed or escaped.
    #[must_use]
    pub fn add_bytes<E: Into<BoxError>>(
        self,
        about: impl Into<Operation>,
        run: impl Fn(&mut S, &PoolCall, Vec<u8>) -> Result<Vec<u8>, E> + Send + Sync + 'static,
    ) -> Self {
        self.add_raw(about, move |state, call, arguments| match arguments.form() {
            Form::Bytes => {
                run(state, call, arguments.into_bytes()).map(CallPayload::bytes).map_err(OperationError::of)
            }
            Form::Json => Err(OperationError::bad_arguments("JSON, where bytes are needed")),
        })
    }

    /// Adds an operation that parses its arguments itself.
    #[must_use]
    pub fn add_raw(
        mut self,
        about: impl Into<Operation>,
        run: impl Fn(&mut S, &PoolCall, CallPayload) -> Result<CallPayload, OperationError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let about = about.into();
        self.entries.insert(about.name.clone(), RegisteredOperation { about, run: Arc::new(run) });
        self
    }
}

impl<S: 'static> OperationSet for Operations<S> {
    fn list(&self) -> Vec<Operation> {
        self.entries.values().map(|entry| entry.about.clone()).collect()
    }

    fn open(&self) -> Result<Box<dyn Operator>, OperationError> {
        let runs = self.entries.iter().map(|(name, entry)| (name.clone(), Arc::clone(&entry.run)));
        Ok(Box::new(StatefulOperator {
            state: (self.init)().map_err(OperationError::of)?,
            cleanup: self.cleanup.clone(),
            runs: runs.collect(),
        }))
    }
}

struct StatefulOperator<S> {
    state: S,
    cleanup: Option<Cleanup<S>>,
    runs: BTreeMap<String, OperationFn<S>>,
}

impl<S> Operator for StatefulOperator<S> {
    fn perform(&mut self, call: &PoolCall, arguments: CallPayload) -> Result<CallPayload, OperationError> {
        let Some(run) = self.runs.get(call.operation()) else {
            let known = self.runs.keys().cloned().collect();
            return Err(OperationError(ErrorKind::UnknownOperation { known }));
        };
        run(&mut self.state, call, arguments)
    }

    fn close(&mut self) {
        if let Some(cleanup) = &self.cleanup {
            cleanup(&mut self.state);
        }
    }
}

/// A time limit as a number of milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(limit: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}
