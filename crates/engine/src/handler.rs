//! Handlers: the code for a kind. Typed for users, type-erased for the executor.
//!
//! A handler returns a [`HandlerReply`] (done) or a [`Verdict`] (every other [`Outcome`]). A payload that
//! does not parse fails the unit before the handler is called.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use longshore_accounts::CallRecord;
use longshore_core::{Effect, Failure, Outcome, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;

/// The code for a kind of unit.
///
/// ```
/// use longshore::{Context, Handler, HandlerResult, HandlerReply, Verdict};
///
/// struct Halve;
///
/// impl Handler for Halve {
///     type Input = u64;
///     type Output = u64;
///     async fn run(&self, _context: Context, input: u64) -> HandlerResult<u64> {
///         if input % 2 == 1 {
///             return Err(Verdict::fail("odd", format!("{input} has no half")));
///         }
///         Ok(HandlerReply::new(input / 2))
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// The type that the payload is parsed as.
    type Input: DeserializeOwned + Send;
    /// The type of the stored result.
    type Output: Serialize + Send;

    /// Runs one unit. The future may be dropped at any await point: on timeout, after the grace of
    /// a cancellation, and when the worker stops.
    fn run(
        &self,
        context: Context,
        input: Self::Input,
    ) -> impl Future<Output = HandlerResult<Self::Output>> + Send;
}

/// What a handler returns: a reply, or a verdict.
pub type HandlerResult<T> = Result<HandlerReply<T>, Verdict>;

/// A result, and what is committed with it.
#[derive(Debug, Clone)]
pub struct HandlerReply<T> {
    /// Stored as the unit's result.
    pub value: T,
    /// Committed in the same transaction as the unit's outcome.
    pub commit: Commit,
}

/// What is committed in the same transaction as a run's outcome.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    /// SQL for the store's own database.
    pub effects: Vec<Effect>,
    /// Checkpoint for the next run, if there is one.
    pub checkpoint: Option<Payload>,
    /// The calls that the run made.
    pub calls: Vec<CallRecord>,
}

impl<T> HandlerReply<T> {
    /// Done, with this result.
    pub fn new(value: T) -> Self {
        Self { value, commit: Commit::default() }
    }

    /// Adds effects.
    #[must_use]
    pub fn with_effects(mut self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.commit.effects.extend(effects);
        self
    }

    /// Adds calls that the run made.
    #[must_use]
    pub fn with_calls(mut self, calls: impl IntoIterator<Item = CallRecord>) -> Self {
        self.commit.calls.extend(calls);
        self
    }
}

impl<T> From<T> for HandlerReply<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// What a handler returns when the unit is not done. Any error converts into a retry with the code
/// `error`, so that `?` works.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The run failed; uses an attempt.
    Retry {
        /// The reason.
        failure: Failure,
        /// Wait exactly this long instead of the policy's delay.
        after: Option<Duration>,
    },
    /// Run again after this long. Uses no attempt.
    Snooze(Duration),
    /// Requeue at the old position, because the run only waits and other units could use the slot.
    /// Uses no attempt.
    Yield,
    /// Fail without a further attempt.
    Fail(Failure),
    /// Cancel the unit.
    Cancel,
    /// Another verdict, and what is committed with it. See [`Verdict::with_effects`] and
    /// [`Verdict::with_checkpoint`].
    With(Box<Verdict>, Commit),
}

impl Verdict {
    /// Adds SQL that is committed with the verdict: a failed row can be marked in its own table.
    #[must_use]
    pub fn with_effects(self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.with(|commit| commit.effects.extend(effects))
    }

    /// Sets the checkpoint for the next run. Unlike [`Context::save_checkpoint`] it is committed
    /// with the verdict.
    #[must_use]
    pub fn with_checkpoint(self, state: Payload) -> Self {
        self.with(|commit| commit.checkpoint = Some(state))
    }

    /// Adds calls that the run made.
    #[must_use]
    pub fn with_calls(self, calls: impl IntoIterator<Item = CallRecord>) -> Self {
        self.with(|commit| commit.calls.extend(calls))
    }

    fn with(self, change: impl FnOnce(&mut Commit)) -> Self {
        let (verdict, mut commit) = match self {
            Self::With(verdict, commit) => (verdict, commit),
            verdict => (Box::new(verdict), Commit::default()),
        };
        change(&mut commit);
        Self::With(verdict, commit)
    }

    /// Retry after the policy's delay.
    pub fn retry(code: impl Into<String>, message: impl Display) -> Self {
        Self::Retry { failure: Failure::new(code, message.to_string()), after: None }
    }

    /// Retry after exactly this long.
    pub fn retry_after(code: impl Into<String>, message: impl Display, after: Duration) -> Self {
        Self::Retry { failure: Failure::new(code, message.to_string()), after: Some(after) }
    }

    /// Fail without a retry.
    pub fn fail(code: impl Into<String>, message: impl Display) -> Self {
        Self::Fail(Failure::new(code, message.to_string()))
    }
}

impl<E: std::error::Error> From<E> for Verdict {
    fn from(error: E) -> Self {
        Self::retry("error", with_causes(&error))
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Retry { failure, after } => Self::Retry { failure, after },
            Verdict::Snooze(after) => Self::Snooze(after),
            Verdict::Yield => Self::Interrupted,
            Verdict::Fail(failure) => Self::Fail(failure),
            Verdict::Cancel => Self::Cancel,
            Verdict::With(verdict, _) => (*verdict).into(),
        }
    }
}

impl From<Verdict> for RunOutcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::With(verdict, commit) => Self { outcome: (*verdict).into(), commit },
            verdict => Outcome::from(verdict).into(),
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        message.push_str(": ");
        message.push_str(&next.to_string());
        cause = next.source();
    }
    message
}

/// What a closure may return: `Result<T, E>` with any `E: Display` (a retry with the code `error`),
/// `Result<T, Verdict>`, or a [`HandlerResult`].
pub trait IntoHandlerResult {
    /// The type of the stored result.
    type Output: Serialize + Send;
    /// Converts into a handler's result.
    fn into_handler_result(self) -> HandlerResult<Self::Output>;
}

impl<T: Serialize + Send, E: Display> IntoHandlerResult for Result<T, E> {
    type Output = T;
    fn into_handler_result(self) -> HandlerResult<T> {
        self.map(HandlerReply::new).map_err(|error| Verdict::retry("error", error))
    }
}

impl<T: Serialize + Send> IntoHandlerResult for Result<T, Verdict> {
    type Output = T;
    fn into_handler_result(self) -> HandlerResult<T> {
        self.map(HandlerReply::new)
    }
}

impl<T: Serialize + Send> IntoHandlerResult for HandlerResult<T> {
    type Output = T;
    fn into_handler_result(self) -> Self {
        self
    }
}

/// A run's outcome, ready for the store.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The outcome.
    pub outcome: Outcome,
    /// What is committed with it.
    pub commit: Commit,
}

impl From<Outcome> for RunOutcome {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, commit: Commit::default() }
    }
}

/// A type-erased handler, which the executor calls. Implement [`Handler`] instead unless the
/// payload is not JSON.
pub trait ErasedHandler: Send + Sync + 'static {
    /// Runs one unit.
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = RunOutcome> + Send + '_>>;
}

/// Erases the types of a [`Handler`].
pub(crate) struct TypedHandler<H>(pub(crate) H);

impl<H: Handler> ErasedHandler for TypedHandler<H> {
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = RunOutcome> + Send + '_>> {
        Box::pin(async move {
            match context.unit().payload.parse() {
                Ok(input) => into_answer(self.0.run(context, input).await),
                Err(error) => bad_input(&error),
            }
        })
    }
}

/// A closure as a handler.
pub(crate) struct ClosureHandler<F, I> {
    run: F,
    input: PhantomData<fn(I)>,
}

impl<F, I> ClosureHandler<F, I> {
    pub(crate) fn new(run: F) -> Self {
        Self { run, input: PhantomData }
    }
}

impl<F, I, R> ErasedHandler for ClosureHandler<F, I>
where
    F: Fn(Context, I) -> R + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    R: Future<Output: IntoHandlerResult> + Send + 'static,
{
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = RunOutcome> + Send + '_>> {
        Box::pin(async move {
            match context.unit().payload.parse::<I>() {
                Ok(input) => into_answer((self.run)(context, input).await.into_handler_result()),
                Err(error) => bad_input(&error),
            }
        })
    }
}

fn into_answer<T: Serialize>(result: HandlerResult<T>) -> RunOutcome {
    let reply = match result {
        Ok(reply) => reply,
        Err(verdict) => return verdict.into(),
    };
    match Payload::json(&reply.value) {
        Ok(value) => RunOutcome { outcome: Outcome::Done(stored_result(value)), commit: reply.commit },
        Err(error) => {
            Outcome::Fail(Failure::new("bad-output", format!("the result is not JSON: {error}"))).into()
        }
    }
}

/// `()` serialises to `null` and is stored as no result.
fn stored_result(value: Payload) -> Option<Payload> {
    (value.as_bytes() != b"null").then_some(value)
}

fn bad_input(error: &serde_json::Error) -> RunOutcome {
    Outcome::Fail(Failure::new(
        "bad-input",
        format!("the payload does not match the handler's input: {error}"),
    ))
    .into()
}
