//! What simulated providers have in common: they take their time, count tokens by estimate and
//! stop at `max_tokens`, as real ones do.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::ask::{Answer, AskError, Code, FinishReason, Question};
use crate::cost::estimate_tokens;

/// Longer than anybody waits: the question's own time is up before.
pub(crate) const FOREVER: Duration = Duration::MAX;

/// Lets `delay` pass; if the question's time is up first, waits for that and says so.
pub(crate) async fn wait(delay: Duration, until: Instant) -> Result<(), AskError> {
    let ready = Instant::now().checked_add(delay).filter(|ready| *ready < until);
    let Some(ready) = ready else {
        sleep_until(until).await;
        let late = AskError::new(Code::Timeout, "no answer in time (simulated)");
        return Err(late.maybe_billed());
    };
    // A timer takes a millisecond even for nothing, and an instant answer should take none.
    if !delay.is_zero() {
        sleep_until(ready).await;
    }
    Ok(())
}

/// The answer to a question that was taken up at `begun`.
pub(crate) fn answer(question: &Question, model: &str, begun: Instant, text: String) -> Answer {
    let (text, finish_reason) = cut(text, question.max_tokens);
    Answer {
        model: question.model.as_deref().unwrap_or(model).to_owned(),
        tokens_in: question.estimate(),
        tokens_out: estimate_tokens(&text).min(question.max_tokens.into()),
        latency_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        finish_reason,
        simulated: true,
        text,
        ..Answer::default()
    }
}

/// As much of a text as `max_tokens` allow, by the estimate's four characters to a token.
fn cut(mut text: String, max_tokens: u32) -> (String, FinishReason) {
    let most = usize::try_from(max_tokens).unwrap_or(usize::MAX).saturating_mul(4);
    match text.char_indices().nth(most) {
        Some((end, _)) => {
            text.truncate(end);
            (text, FinishReason::Length)
        }
        None => (text, FinishReason::Stop),
    }
}
