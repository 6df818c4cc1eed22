//! `echo`: a provider that returns the prompt.
//!
//! For testing everything around a model: what is sent, what is stored, how fast it is. With a
//! schema it answers JSON that follows it ([`crate::simulated::schema_sample`]), so that a batch
//! can be tested before a script is written or a key is paid for.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::model_api::{Answer, AskError, Provider, Question};
use crate::simulated;
use crate::simulated::schema_sample::sample;

/// Returns the prompt.
#[derive(Debug, Clone)]
pub struct Echo {
    /// The model's name in answers.
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
        let started = Instant::now();
        simulated::respond_after(self.delay, question.until).await?;
        let text = match &question.schema {
            Some(schema) => sample(schema, question.prompt_text()).to_string(),
            None => question.prompt_text().to_owned(),
        };
        Ok(simulated::answer(question, &self.model, started, text))
    }

    /// Its answers count this many.
    fn token_bound(&self, question: &Question) -> u64 {
        question.estimate()
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
