//! Scripts: which prompt gets which answer.
//!
//! A script is TOML, a list of answers of which the first that matches is given:
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
//! text; `|int` and `|float` make numbers; a group that took no part is empty), `prompt`, and `n`:
//! how often this very prompt was asked before. [`written`] reads the file and refuses what cannot
//! work; here is what is left of it, compiled once, and the choice.

mod source;
mod templates;
mod written;

use std::fmt;
use std::time::Duration;

use minijinja::{Expression, Value};
use regex::{Captures, Regex};

use crate::ask::{AskError, Code};
use templates::Templates;

/// A script, compiled.
pub struct Script {
    rules: Vec<Rule>,
    templates: Templates,
}

/// Why a script does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Where, from 1.
    pub line: usize,
    /// What, and what was probably meant.
    pub message: String,
}

/// One `[[answer]]`.
struct Rule {
    /// Where it stands.
    line: usize,
    pattern: Option<Regex>,
    when: Option<Expression<'static, 'static>>,
    delay: Option<Duration>,
    act: Act<TemplateName>,
}

type TemplateName = String;

/// What an answer comes to. In a rule the text is the name of its template.
#[derive(Debug)]
pub(crate) enum Act<Text> {
    /// An answer, and how many tokens it is said to have.
    Reply { text: Text, tokens_out: Option<u64> },
    /// None.
    Error(AskError),
}

/// What a script wants done with a question.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) delay: Option<Duration>,
    pub(crate) act: Act<String>,
}

impl Script {
    /// Reads a script. The same text gives the same script.
    ///
    /// ```
    /// use longshore_ai::Script;
    ///
    /// assert!(Script::parse("[[answer]]\nreply = 'Ahoy!'").is_ok());
    /// let error = Script::parse("[[answer]]\nreplay = 'Ahoy!'").unwrap_err();
    /// assert_eq!(error.to_string(), "line 2: unknown key `replay`, did you mean `reply`?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        written::read(text)
    }

    /// Whether any rule asks for `n`.
    pub(crate) fn counts_prompts(&self) -> bool {
        self.templates.use_n()
    }

    /// The first answer that matches, for a prompt that came `n` times before.
    pub(crate) fn choose(&self, prompt: &str, n: u64) -> Result<Choice, AskError> {
        for rule in &self.rules {
            if let Some(choice) = self.apply(rule, prompt, n).map_err(|e| rule.failure(&e))? {
                return Ok(choice);
            }
        }
        Err(AskError::new(Code::InvalidRequest, "the script has no answer for this prompt"))
    }

    fn apply(&self, rule: &Rule, prompt: &str, n: u64) -> Result<Option<Choice>, minijinja::Error> {
        let Some(names) = rule.names(prompt, n) else { return Ok(None) };
        if let Some(when) = &rule.when
            && !when.eval(names.clone())?.is_true()
        {
            return Ok(None);
        }
        let act = match &rule.act {
            Act::Reply { text, tokens_out } => {
                Act::Reply { text: self.templates.render(text, names)?, tokens_out: *tokens_out }
            }
            Act::Error(error) => Act::Error(error.clone()),
        };
        Ok(Some(Choice { delay: rule.delay, act }))
    }
}

impl Rule {
    /// What expressions and templates may name, if the pattern matches.
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
        let words = templates::words(error);
        let message = format!("the script's answer in line {line} fails for this prompt: {words}");
        AskError::new(Code::InvalidRequest, message)
    }
}

fn named_groups<'a>(pattern: &'a Regex, found: &Captures<'_>) -> Vec<(&'a str, Value)> {
    let names = pattern.capture_names().flatten();
    names.map(|name| (name, found.name(name).map_or("", |group| group.as_str()).into())).collect()
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("answers", &self.rules.len()).finish_non_exhaustive()
    }
}
