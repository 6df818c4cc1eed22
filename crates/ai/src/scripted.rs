//! `scripted`: the provider that answers by a script.
//!
//! Every way an answer can come or fail to come can be written down, so a test or an example
//! reaches it from data. What scripts look like is in [`crate::script`].

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::ask::{Answer, AskError, Provider, Question};
use crate::script::{Act, Script};
use crate::seen::Seen;
use crate::simulated;

/// Answers by a script. The same questions in the same order get the same answers.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    model: String,
    delay: Duration,
    seen: Seen,
}

impl Scripted {
    /// A provider that says it is `model` and takes `delay` where the script says nothing else.
    pub fn new(script: Script, model: impl Into<String>, delay: Duration) -> Self {
        Self { script, model: model.into(), delay, seen: Seen::default() }
    }

    /// Counts only for scripts that want to know.
    fn times_asked_before(&self, prompt: &str) -> u64 {
        if self.script.counts_prompts() { self.seen.count(prompt) } else { 0 }
    }
}

#[async_trait]
impl Provider for Scripted {
    async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        let begun = Instant::now();
        let n = self.times_asked_before(question.words());
        let choice = self.script.choose(question.words(), n)?;
        simulated::wait(choice.delay.unwrap_or(self.delay), question.until).await?;
        match choice.act {
            Act::Reply { text, tokens_out } => {
                let answer = simulated::answer(question, &self.model, begun, text);
                Ok(Answer { tokens_out: tokens_out.unwrap_or(answer.tokens_out), ..answer })
            }
            Act::Error(error) => Err(error),
        }
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
