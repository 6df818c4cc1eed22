//! Simulated providers. As real ones do, they take time, count tokens (by estimate) and stop at
//! `max_tokens`.

mod echo;
mod prompt_counter;
mod schema_sample;
mod script;
mod scripted;

pub use echo::Echo;
pub use script::{ScriptError, SimulatorScript};
pub use scripted::Scripted;

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::model_api::{Answer, AskError, Code, FinishReason, Question};
use crate::pricing::{end_of_tokens, estimate_tokens};

/// Longer than any deadline.
pub(crate) const FOREVER: Duration = Duration::MAX;

/// Waits for `delay`; if the deadline comes first, waits for that and returns a timeout.
pub(crate) async fn respond_after(delay: Duration, until: Instant) -> Result<(), AskError> {
    if Instant::now() >= until {
        return Err(AskError::new(Code::Timeout, "the deadline passed before the question was asked"));
    }
    let ready = Instant::now().checked_add(delay).filter(|ready| *ready < until);
    let Some(ready) = ready else {
        sleep_until(until).await;
        let late = AskError::new(Code::Timeout, "no answer in time (simulated)");
        return Err(late.maybe_billed());
    };
    // A timer takes a millisecond even for a zero delay, and an instant answer should take none.
    if !delay.is_zero() {
        sleep_until(ready).await;
    }
    Ok(())
}

/// The answer to a question that arrived at `started`.
pub(crate) fn answer(question: &Question, model: &str, started: Instant, text: String) -> Answer {
    let embeddings = question.embeddings.as_ref().map(|input| input.simulated());
    let (text, finish_reason) = match embeddings {
        Some(_) => (String::new(), FinishReason::Stop),
        None => truncate(text, question.max_tokens),
    };
    Answer {
        model: question.model.as_deref().unwrap_or(model).to_owned(),
        tokens_in: question.estimate(),
        tokens_out: estimate_tokens(&text).min(question.max_tokens.into()),
        latency_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        finish_reason,
        simulated: true,
        text,
        embeddings: embeddings.unwrap_or_default(),
        ..Answer::default()
    }
}

/// Truncates a text to `max_tokens`, by the estimate.
fn truncate(mut text: String, max_tokens: u32) -> (String, FinishReason) {
    match end_of_tokens(&text, max_tokens.into()) {
        Some(end) => {
            text.truncate(end);
            (text, FinishReason::Length)
        }
        None => (text, FinishReason::Stop),
    }
}
