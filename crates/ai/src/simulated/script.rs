//! Scripts: map prompts to answers.
//!
//! A script is TOML, a list of answers of which the first matching one is given:
//!
//! ```toml
//! [[answer]]
//! match = '(?<a>\d+) \+ (?<b>\d+)'    # a regex over the prompt; without one, any prompt
//! when = "a|int < 100 and n == 0"     # an expression; without one, always
//! reply = '{"sum": {{ a|int + b|int }}}'
//! delay = "50ms"                      # instead of the provider's
//! tokens_out = 12                     # instead of an estimate
//!
//! [[answer]]
//! match = 'overload'
//! error = "RATE_LIMITED"
//! message = "slow down"
//! retry_after = "2s"
//!
//! [[answer]]
//! hang = true                         # never answers; the question's time runs out
//! ```
//!
//! `when` and `reply` are a minijinja expression and template over the regex' named groups (as
//! text; `|int` and `|float` make numbers; a group that did not match is empty), `prompt`, and `n`:
//! how often this very prompt was asked before. [`parse`] parses and validates the file; this
//! module holds the compiled rules and chooses among them.

mod parse;
mod source;
mod templates;

use std::fmt;
use std::time::Duration;

use minijinja::{Expression, Value};
use regex::{Captures, Regex};

use crate::model_api::{AskError, Code};
use templates::Templates;

/// A compiled script.
pub struct SimulatorScript {
    rules: Vec<Rule>,
    templates: Templates,
}

/// Why a script is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what was probably meant.
    pub message: String,
}

/// One `[[answer]]`.
struct Rule {
    /// Its line.
    line: usize,
    pattern: Option<Regex>,
    when: Option<Expression<'static, 'static>>,
    delay: Option<Duration>,
    action: RuleAction<TemplateName>,
}

type TemplateName = String;

/// What a rule does. In a rule the text is the name of its template.
#[derive(Debug)]
pub(crate) enum RuleAction<Text> {
    /// Answers; `tokens_out` overrides the estimate.
    Reply { text: Text, tokens_out: Option<u64> },
    /// Fails.
    Error(AskError),
}

/// The script's decision for a question.
#[derive(Debug)]
pub(crate) struct ScriptDecision {
    pub(crate) delay: Option<Duration>,
    pub(crate) action: RuleAction<String>,
}

impl SimulatorScript {
    /// Parses a script. The same text gives the same script.
    ///
    /// ```
    /// use longshore_ai::SimulatorScript;
    ///
    /// assert!(SimulatorScript::parse("[[answer]]\nreply = 'Ahoy!'").is_ok());
    /// let error = SimulatorScript::parse("[[answer]]\nreplay = 'Ahoy!'").unwrap_err();
    /// assert_eq!(error.to_string(), "line 2: unknown key `replay`, did you mean `reply`?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        parse::parse(text)
    }

    /// Whether any rule uses `n`.
    pub(crate) fn counts_prompts(&self) -> bool {
        self.templates.use_n()
    }

    /// The first matching answer, for a prompt that was asked `n` times before.
    pub(crate) fn choose(&self, prompt: &str, n: u64) -> Result<ScriptDecision, AskError> {
        for rule in &self.rules {
            if let Some(choice) = self.apply(rule, prompt, n).map_err(|e| rule.failure(&e))? {
                return Ok(choice);
            }
        }
        Err(AskError::new(Code::InvalidRequest, "the script has no answer for this prompt"))
    }

    fn apply(&self, rule: &Rule, prompt: &str, n: u64) -> Result<Option<ScriptDecision>, minijinja::Error> {
        let Some(names) = rule.names(prompt, n) else { return Ok(None) };
        if let Some(when) = &rule.when
            && !when.eval(names.clone())?.is_true()
        {
            return Ok(None);
        }
        let action = match &rule.action {
            RuleAction::Reply { text, tokens_out } => {
                RuleAction::Reply { text: self.templates.render(text, names)?, tokens_out: *tokens_out }
            }
            RuleAction::Error(error) => RuleAction::Error(error.clone()),
        };
        Ok(Some(ScriptDecision { delay: rule.delay, action }))
    }
}

impl Rule {
    /// The variables of expressions and templates, if the pattern matches.
    fn names(&self, prompt: &str, n: u64) -> Option<Value> {
        let groups = match &self.pattern {
            Some(pattern) => named_groups(pattern, &pattern.captures(prompt)?),
            None => vec![],
        };
        let own = [("prompt", Value::from(prompt)), ("n", Value::from(n))];
        Some(Value::from_pairs(own.into_iter().chain(groups)))
    }

    fn failure(&self, error: &minijinja::Error) -> AskError {
        let line = self.line;
        let cause = templates::error_message(error);
        let message = format!("the script's answer in line {line} fails for this prompt: {cause}");
        AskError::new(Code::InvalidRequest, message)
    }
}

fn named_groups<'a>(pattern: &'a Regex, found: &Captures<'_>) -> Vec<(&'a str, Value)> {
    let names = pattern.capture_names().flatten();
    names.map(|name| (name, found.name(name).map_or("", |group| group.as_str()).into())).collect()
}

impl fmt::Debug for SimulatorScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("answers", &self.rules.len()).finish_non_exhaustive()
    }
}
