//! Questions and scripted providers for the tests.

use std::sync::Arc;
use std::time::Duration;

use longshore_ai::{Answer, AskError, Provider, Question, Scripted, SimulatorScript};
use serde_json::Value;
use tokio::time::Instant;

/// A question with a deadline in one minute.
pub(crate) fn question(prompt: &str) -> Question {
    let until = Instant::now() + Duration::from_secs(60);
    Question { max_tokens: 1000, ..Question::new("r-1", prompt, until) }
}

/// A question with a schema for its answer.
pub(crate) fn question_by(schema: &Value, prompt: &str) -> Question {
    Question { schema: Some(Arc::new(schema.clone())), ..question(prompt) }
}

/// A scripted provider without a default delay.
pub(crate) fn scripted(script: &str) -> Scripted {
    Scripted::new(SimulatorScript::parse(script).unwrap(), "scripted", Duration::ZERO)
}

/// A script's answer to one prompt.
pub(crate) async fn ask(script: &str, prompt: &str) -> Result<Answer, AskError> {
    scripted(script).ask(&question(prompt)).await
}

/// The text of a script's answer.
pub(crate) async fn text(script: &str, prompt: &str) -> String {
    ask(script, prompt).await.unwrap().text
}
