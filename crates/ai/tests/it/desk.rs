//! Questions for the tests to ask.

use std::sync::Arc;
use std::time::Duration;

use longshore_ai::{Answer, AskError, Provider, Question, Script, Scripted};
use serde_json::Value;
use tokio::time::Instant;

/// A question that may take a minute.
pub(crate) fn question(prompt: &str) -> Question {
    let until = Instant::now() + Duration::from_secs(60);
    Question { max_tokens: 1000, ..Question::new("r-1", prompt, until) }
}

/// A question whose answer should follow a schema.
pub(crate) fn question_by(schema: &Value, prompt: &str) -> Question {
    Question { schema: Some(Arc::new(schema.clone())), ..question(prompt) }
}

/// A provider with a script, instant where that says nothing else.
pub(crate) fn scripted(script: &str) -> Scripted {
    Scripted::new(Script::parse(script).unwrap(), "scripted", Duration::ZERO)
}

/// What a script answers to one prompt.
pub(crate) async fn ask(script: &str, prompt: &str) -> Result<Answer, AskError> {
    scripted(script).ask(&question(prompt)).await
}

/// The text of it.
pub(crate) async fn text(script: &str, prompt: &str) -> String {
    ask(script, prompt).await.unwrap().text
}
