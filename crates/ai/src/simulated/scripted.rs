//! `scripted`: a provider that answers by a script.
//!
//! A script can produce every kind of answer and failure, so that tests and examples reach them
//! from data. The format is described in [`crate::simulated::script`].

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::model_api::{Answer, AskError, Provider, Question};
use crate::simulated;
use crate::simulated::prompt_counter::PromptCounter;
use crate::simulated::script::{RuleAction, SimulatorScript};

/// Answers by a script. The same questions in the same order get the same answers.
#[derive(Debug)]
pub struct Scripted {
    script: SimulatorScript,
    model: String,
    delay: Duration,
    prompt_counter: PromptCounter,
}

impl Scripted {
    /// A provider with this model name and default delay.
    pub fn new(script: SimulatorScript, model: impl Into<String>, delay: Duration) -> Self {
        Self { script, model: model.into(), delay, prompt_counter: PromptCounter::default() }
    }

    /// Counts only for scripts that use `n`.
    fn times_asked_before(&self, prompt: &str) -> u64 {
        if self.script.counts_prompts() { self.prompt_counter.count(prompt) } else { 0 }
    }
}

#[async_trait]
impl Provider for Scripted {
    async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        let started = Instant::now();
        let n = self.times_asked_before(question.prompt_text());
        let decision = self.script.choose(question.prompt_text(), n)?;
        simulated::respond_after(decision.delay.unwrap_or(self.delay), question.until).await?;
        match decision.action {
            RuleAction::Reply { text, tokens_out } => {
                let answer = simulated::answer(question, &self.model, started, text);
                Ok(Answer { tokens_out: tokens_out.unwrap_or(answer.tokens_out), ..answer })
            }
            RuleAction::Error(error) => Err(error),
        }
    }

    /// Its answers count this many.
    fn token_bound(&self, question: &Question) -> u64 {
        question.estimate()
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
