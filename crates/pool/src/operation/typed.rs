//! Operations on typed arguments: parsed from JSON, and reported with their schema.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Operation, Operations};
use crate::call::PoolCall;
use crate::error::{BoxError, OperationError};
use crate::payload::CallPayload;

impl<S: 'static> Operations<S> {
    /// Adds an operation on typed arguments. It replaces an operation of the same name.
    #[must_use]
    pub fn add<A, R, E>(
        self,
        about: impl Into<Operation>,
        run: impl Fn(&mut S, A) -> Result<R, E> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize + JsonSchema,
        E: Into<BoxError>,
    {
        self.add_with(about, move |state, _: &PoolCall, arguments| run(state, arguments))
    }

    /// Adds an operation on typed arguments that uses its [`PoolCall`]: to report progress, or to check
    /// for cancellation.
    #[must_use]
    pub fn add_with<A, R, E>(
        self,
        about: impl Into<Operation>,
        run: impl Fn(&mut S, &PoolCall, A) -> Result<R, E> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize + JsonSchema,
        E: Into<BoxError>,
    {
        let mut about = about.into();
        about.arguments = Some(schemars::schema_for!(A).into());
        about.result = Some(schemars::schema_for!(R).into());
        self.add_raw(about, move |state, call, arguments| {
            let arguments =
                arguments.read().map_err(|error| OperationError::bad_arguments(error.to_string()))?;
            let result = run(state, call, arguments).map_err(OperationError::of)?;
            CallPayload::json(&result).map_err(OperationError::of)
        })
    }
}
