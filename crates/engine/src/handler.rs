//! Handlers: the code for a kind. Typed outside, erased inside.
//!
//! A handler answers with a [`Reply`] (done) or a [`Verdict`] (everything else an [`Outcome`] can
//! say). Input that does not parse is answered with a failure before the handler is called.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use longshore_core::ledger::CallRecord;
use longshore_core::{Effect, Failure, Outcome, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;

/// The code for a kind of unit.
///
/// ```
/// use longshore::{Context, Handler, HandlerResult, Reply, Verdict};
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
///         Ok(Reply::new(input / 2))
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// What the payload is read as.
    type Input: DeserializeOwned + Send;
    /// What is kept as the result.
    type Output: Serialize + Send;

    /// Runs one unit. May be dropped at any await point: on timeout, on cancellation after a
    /// grace, and when the worker stops.
    fn run(
        &self,
        context: Context,
        input: Self::Input,
    ) -> impl Future<Output = HandlerResult<Self::Output>> + Send;
}

/// What a handler answers: done, or a verdict.
pub type HandlerResult<T> = Result<Reply<T>, Verdict>;

/// A result, and what commits with it.
#[derive(Debug, Clone)]
pub struct Reply<T> {
    /// Kept as the unit's result.
    pub value: T,
    /// What commits with the unit's finish, or not at all.
    pub commit: Commit,
}

/// What commits with the end of a run, or not at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    /// SQL in the store's own database.
    pub effects: Vec<Effect>,
    /// What the next run begins with, should there be one.
    pub checkpoint: Option<Payload>,
    /// What calls of the run came to.
    pub calls: Vec<CallRecord>,
}

impl<T> Reply<T> {
    /// Done, with this result.
    pub fn new(value: T) -> Self {
        Self { value, commit: Commit::default() }
    }

    /// Done, with these effects.
    #[must_use]
    pub fn with_effects(mut self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.commit.effects.extend(effects);
        self
    }

    /// Done, and this is what the calls of the run came to.
    #[must_use]
    pub fn with_calls(mut self, calls: impl IntoIterator<Item = CallRecord>) -> Self {
        self.commit.calls.extend(calls);
        self
    }
}

impl<T> From<T> for Reply<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// What a handler says when the unit is not done. Any error becomes a retry with the code
/// `error`, so `?` does what one expects.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It did not work this time; uses up an attempt.
    Retry {
        /// Why.
        failure: Failure,
        /// Wait exactly this long instead of the policy's delay.
        after: Option<Duration>,
    },
    /// Not now: come back after this long. No attempt is used.
    Snooze(Duration),
    /// It only waits, and others could use its slot: it goes back to its place in the queue. No
    /// attempt is used.
    Yield,
    /// It cannot work: no further attempt.
    Fail(Failure),
    /// It should not be done any more.
    Cancel,
    /// One of the others, and what commits with it. See [`Verdict::with_effects`] and
    /// [`Verdict::with_checkpoint`].
    With(Box<Verdict>, Commit),
}

impl Verdict {
    /// The same, with SQL that commits with it or not at all: a row that failed may say so in its
    /// own table.
    #[must_use]
    pub fn with_effects(self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.with(|commit| commit.effects.extend(effects))
    }

    /// The same, and the next run begins with this checkpoint. Unlike
    /// [`Context::save_checkpoint`] it is kept with the verdict or not at all.
    #[must_use]
    pub fn with_checkpoint(self, state: Payload) -> Self {
        self.with(|commit| commit.checkpoint = Some(state))
    }

    /// The same, and this is what the calls of the run came to.
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

    /// Try again when the policy says so.
    pub fn retry(code: impl Into<String>, message: impl Display) -> Self {
        Self::Retry { failure: Failure::new(code, message.to_string()), after: None }
    }

    /// Try again after exactly this long.
    pub fn retry_after(code: impl Into<String>, message: impl Display, after: Duration) -> Self {
        Self::Retry { failure: Failure::new(code, message.to_string()), after: Some(after) }
    }

    /// Do not try again.
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

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::With(verdict, commit) => Self { outcome: (*verdict).into(), commit },
            verdict => Outcome::from(verdict).into(),
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        story.push_str(": ");
        story.push_str(&next.to_string());
        cause = next.source();
    }
    story
}

/// What a closure may return: `Result<T, E>` with any `E` that can be shown (a retry with the code
/// `error`), `Result<T, Verdict>`, or a whole [`HandlerResult`].
pub trait IntoHandlerResult {
    /// What is kept as the result.
    type Output: Serialize + Send;
    /// The answer in full.
    fn into_handler_result(self) -> HandlerResult<Self::Output>;
}

impl<T: Serialize + Send, E: Display> IntoHandlerResult for Result<T, E> {
    type Output = T;
    fn into_handler_result(self) -> HandlerResult<T> {
        self.map(Reply::new).map_err(|error| Verdict::retry("error", error))
    }
}

impl<T: Serialize + Send> IntoHandlerResult for Result<T, Verdict> {
    type Output = T;
    fn into_handler_result(self) -> HandlerResult<T> {
        self.map(Reply::new)
    }
}

impl<T: Serialize + Send> IntoHandlerResult for HandlerResult<T> {
    type Output = T;
    fn into_handler_result(self) -> Self {
        self
    }
}

/// What a run came to, ready for the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the handler said.
    pub outcome: Outcome,
    /// What commits with it.
    pub commit: Commit,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, commit: Commit::default() }
    }
}

/// A handler without its types: what the executor calls. Implement [`Handler`] instead unless the
/// payload is not JSON.
pub trait ErasedHandler: Send + Sync + 'static {
    /// Runs one unit.
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>>;
}

/// Gives a [`Handler`] its erased form.
pub(crate) struct Typed<H>(pub(crate) H);

impl<H: Handler> ErasedHandler for Typed<H> {
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            match context.unit().payload.parse() {
                Ok(input) => answer(self.0.run(context, input).await),
                Err(error) => bad_input(&error),
            }
        })
    }
}

/// Makes a closure a handler.
pub(crate) struct Closure<F, I> {
    run: F,
    input: PhantomData<fn(I)>,
}

impl<F, I> Closure<F, I> {
    pub(crate) fn new(run: F) -> Self {
        Self { run, input: PhantomData }
    }
}

impl<F, I, R> ErasedHandler for Closure<F, I>
where
    F: Fn(Context, I) -> R + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    R: Future<Output: IntoHandlerResult> + Send + 'static,
{
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            match context.unit().payload.parse::<I>() {
                Ok(input) => answer((self.run)(context, input).await.into_handler_result()),
                Err(error) => bad_input(&error),
            }
        })
    }
}

fn answer<T: Serialize>(result: HandlerResult<T>) -> Answer {
    let reply = match result {
        Ok(reply) => reply,
        Err(verdict) => return verdict.into(),
    };
    match Payload::json(&reply.value) {
        Ok(value) => Answer { outcome: Outcome::Done(kept(value)), commit: reply.commit },
        Err(error) => {
            Outcome::Fail(Failure::new("bad-output", format!("the result is not JSON: {error}")))
                .into()
        }
    }
}

/// `()` is no result: nothing is kept for it.
fn kept(value: Payload) -> Option<Payload> {
    (value.as_bytes() != b"null").then_some(value)
}

fn bad_input(error: &serde_json::Error) -> Answer {
    Outcome::Fail(Failure::new(
        "bad-input",
        format!("the payload is not what the handler reads: {error}"),
    ))
    .into()
}
