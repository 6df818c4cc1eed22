//! `echo`: the provider that says the prompt back.
//!
//! For trying out everything around a model: what is sent, what is stored, how fast it goes. With
//! a schema it answers JSON that follows it ([`crate::sample`]), so that a batch can be run
//! through before anybody has written a script or paid for a key.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::ask::{Answer, AskError, Provider, Question};
use crate::sample::sample;
use crate::simulated;

/// Says the prompt back.
#[derive(Debug, Clone)]
pub struct Echo {
    /// What it says it is.
    pub model: String,
    /// How long each answer takes.
    pub delay: Duration,
}

impl Default for Echo {
    fn default() -> Self {
        Self { model: "echo".into(), delay: Duration::ZERO }
    }
}

#[async_trait]
impl Provider for Echo {
    async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        let begun = Instant::now();
        simulated::wait(self.delay, question.until).await?;
        let text = match &question.schema {
            Some(schema) => sample(schema, question.words()).to_string(),
            None => question.words().to_owned(),
        };
        Ok(simulated::answer(question, &self.model, begun, text))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
