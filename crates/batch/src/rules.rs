//! What a reply comes to: the rules of POST, and what holds where none of them matches.
//!
//! Pure: the same rules and the same reply give the same verdict. A rule sees `status`
//! (`"success"`, `"error"` or `"skipped"`), `error_code`, `error_message`, `answer` (the JSON), `text`,
//! `finish_reason` and `attempt`. A rule about something that the reply does not have (a field of
//! the answer when there is no answer) does not match. Without a match: no error is SUCCESS and so
//! is a row that PRE skipped, an error that may pass is RETRY, any other is FAIL. RETRY at the last
//! attempt is FAIL.

use std::time::Duration;

use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

use crate::definition::{Rule, Verdict};
use crate::step::Reply;
use crate::template::{self, TemplateError};

/// The names a rule may use.
pub const NAMES: [&str; 7] =
    ["status", "error_code", "error_message", "answer", "text", "finish_reason", "attempt"];

/// Compiled rules, in order. Deciding takes `&self`: one serves all workers.
#[derive(Debug)]
pub struct Rules {
    environment: Environment<'static>,
    rules: Vec<Rule>,
}

/// A rule that does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {}: `{part}`: {error}", index + 1)]
pub struct RuleError {
    /// Which rule, from 0.
    pub index: usize,
    /// `when` or `reason`.
    pub part: &'static str,
    /// What is wrong with it.
    pub error: TemplateError,
}

/// What a decision looks at.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The reply.
    pub reply: &'a Reply,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Whether there will be no other.
    pub is_last_attempt: bool,
}

/// What a reply comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Which of the three.
    pub verdict: Verdict,
    /// Why, with FAIL and RETRY.
    pub reason: Option<String>,
    /// With RETRY: wait exactly this long.
    pub after: Option<Duration>,
    /// The rule that matched, from 0.
    pub rule: Option<usize>,
}

impl Rules {
    /// Compiles rules.
    pub fn compile(rules: &[Rule]) -> Result<Self, RuleError> {
        let mut environment = template::environment();
        for (index, rule) in rules.iter().enumerate() {
            let bad = |part| {
                move |error: minijinja::Error| RuleError {
                    index,
                    part,
                    error: TemplateError::from_engine(&error),
                }
            };
            let refused = |part| move |error| RuleError { index, part, error };
            template::guard_expression(&rule.when).map_err(refused("when"))?;
            template::guard(rule.reason.as_deref().unwrap_or_default())
                .map_err(refused("reason"))?;
            environment.compile_expression_owned(rule.when.clone()).map_err(bad("when"))?;
            // An expression borrows its engine and could not be kept beside it; a template can.
            let test = format!("{{% if {} %}}1{{% endif %}}", rule.when);
            environment.add_template_owned(when(index), test).map_err(bad("when"))?;
            if let Some(text) = &rule.reason {
                let added = environment.add_template_owned(reason(index), text.clone());
                added.map_err(bad("reason"))?;
            }
        }
        Ok(Self { environment, rules: rules.to_vec() })
    }

    /// Decides. An error means that a rule cannot be worked out with this reply.
    pub fn decide(&self, facts: &Facts<'_>) -> Result<Decision, String> {
        let names = names(facts);
        let mut decision = by_reply(facts.reply);
        for (index, rule) in self.rules.iter().enumerate() {
            if self.matches(index, &names)? {
                decision = self.by_rule(index, rule, facts, &names);
                break;
            }
        }
        Ok(settle(decision, facts))
    }

    /// The names that rule number `index` asks for, `answer.confidence` as it is written, and in
    /// which part of the rule.
    pub fn names(&self, index: usize) -> Vec<(&'static str, String)> {
        let Some(rule) = self.rules.get(index) else { return Vec::new() };
        let in_when = template::names_in(&self.environment, &rule.when);
        let in_reason = template::names(&self.environment, &reason(index));
        let tagged = in_when.into_iter().map(|name| ("when", name));
        tagged.chain(in_reason.into_iter().map(|name| ("reason", name))).collect()
    }

    /// Works every rule out over an empty answer, to find words that no answer could make right.
    pub(crate) fn rehearse(&self) -> Result<(), RuleError> {
        let names = context! {
            answer => Value::from_pairs(std::iter::empty::<(&str, Value)>()),
            status => "success", error_code => (), error_message => (),
            text => "", finish_reason => "stop", attempt => 1,
        };
        for index in 0..self.rules.len() {
            for (part, name) in [("when", when(index)), ("reason", reason(index))] {
                let Ok(template) = self.environment.get_template(&name) else { continue };
                match template.render(&names) {
                    Err(error) if template::is_unknown_word(&error) => {
                        let error = TemplateError::from_engine(&error);
                        return Err(RuleError { index, part, error });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn matches(&self, index: usize, names: &Value) -> Result<bool, String> {
        match self.environment.get_template(&when(index)).and_then(|test| test.render(names)) {
            Ok(said) => Ok(!said.is_empty()),
            Err(error) if template::is_undefined(&error) => Ok(false),
            Err(error) => {
                let error = TemplateError::from_engine(&error);
                Err(format!("rule {}: `when`: {error}", index + 1))
            }
        }
    }

    fn by_rule(&self, index: usize, rule: &Rule, facts: &Facts<'_>, names: &Value) -> Decision {
        // A reason that cannot be rendered is no reason to lose the decision.
        let written = self.environment.get_template(&reason(index));
        let written = written.and_then(|reason| reason.render(names)).ok();
        let reason = written.unwrap_or_else(|| format!("by rule: {}", rule.when));
        let asked = facts.reply.error.as_ref().and_then(|error| error.retry_after);
        Decision {
            verdict: rule.then,
            reason: Some(reason),
            after: rule.after.or(asked),
            rule: Some(index),
        }
    }
}

fn when(index: usize) -> String {
    format!("when {index}")
}

fn reason(index: usize) -> String {
    format!("reason {index}")
}

/// What holds without rules.
fn by_reply(reply: &Reply) -> Decision {
    let Some(error) = reply.error.as_ref().filter(|_| !reply.is_skipped()) else {
        return Decision { verdict: Verdict::Success, reason: None, after: None, rule: None };
    };
    let verdict = if error.retryable { Verdict::Retry } else { Verdict::Fail };
    let reason = Some(format!("{}: {}", error.code, error.message));
    Decision { verdict, reason, after: error.retry_after, rule: None }
}

/// Leaves what the verdict has no use for; the last RETRY is a FAIL.
fn settle(decision: Decision, facts: &Facts<'_>) -> Decision {
    let Decision { verdict, reason, after, rule } = decision;
    match verdict {
        Verdict::Success => Decision { verdict, reason: None, after: None, rule },
        Verdict::Retry if !facts.is_last_attempt => Decision { verdict, reason, after, rule },
        Verdict::Retry => {
            let reason = reason.map(|reason| format!("{reason} (after {})", attempts(facts)));
            Decision { verdict: Verdict::Fail, reason, after: None, rule }
        }
        Verdict::Fail => Decision { verdict, reason, after: None, rule },
    }
}

fn attempts(facts: &Facts<'_>) -> String {
    match facts.attempt {
        1 => "1 attempt".to_owned(),
        many => format!("{many} attempts"),
    }
}

fn names(facts: &Facts<'_>) -> Value {
    let Facts { reply, attempt, .. } = *facts;
    let error = reply.error.as_ref();
    let answer = reply.answer.as_ref();
    context! {
        status => reply.status(),
        error_code => error.map(|error| error.code.as_str()),
        error_message => error.map(|error| error.message.as_str()),
        answer => reply.json.as_ref().map_or(Value::UNDEFINED, |json| Value::from(Serde(json))),
        text => answer.map(|answer| answer.text.as_str()),
        finish_reason => answer.map(|answer| Value::from(Serde(answer.finish_reason))),
        attempt,
    }
}
