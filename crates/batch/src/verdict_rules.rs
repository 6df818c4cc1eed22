//! POST's rules: map a reply to a verdict.
//!
//! Pure and deterministic. A rule sees `status` (`"success"`, `"error"` or `"skipped"`),
//! `error_code`, `error_message`, `answer` (the JSON), `text`, `finish_reason` and `attempt`. A
//! rule about a missing value (a field of the answer when there is no answer) does not match.
//! Without a match, no error and a row that PRE skipped are SUCCESS, a retryable error is RETRY,
//! any other is FAIL. RETRY at the last attempt becomes FAIL.

use std::collections::BTreeMap;
use std::time::Duration;

use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

use crate::definition::{PostVerdict, Rule};
use crate::pre_post::RowReply;
use crate::template::{self, TemplateError};

/// The names that a rule may use.
pub const RULE_NAMES: [&str; 8] =
    ["status", "error_code", "error_message", "answer", "text", "finish_reason", "attempt", STEPS];

/// The name of the answers of earlier steps: `steps.NAME`.
pub const STEPS: &str = "steps";

/// Compiled rules, in order. Deciding takes `&self`, so all workers share them.
#[derive(Debug)]
pub struct RuleSet {
    environment: Environment<'static>,
    rules: Vec<Rule>,
}

/// An error in a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {}: `{part}`: {error}", index + 1)]
pub struct RuleError {
    /// The rule's index, from 0.
    pub index: usize,
    /// `when` or `reason`.
    pub part: &'static str,
    /// The error.
    pub error: TemplateError,
}

/// The input of a decision.
#[derive(Debug, Clone, Copy)]
pub struct RuleInput<'a> {
    /// The reply.
    pub reply: &'a RowReply,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Whether it is the last attempt.
    pub is_last_attempt: bool,
    /// The answers of earlier steps.
    pub answers: &'a BTreeMap<String, serde_json::Value>,
}

/// The decision about a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDecision {
    /// The verdict.
    pub verdict: PostVerdict,
    /// The reason, with FAIL and RETRY.
    pub reason: Option<String>,
    /// With RETRY: wait exactly this long.
    pub after: Option<Duration>,
    /// The rule that matched, from 0.
    pub rule: Option<usize>,
}

impl RuleDecision {
    /// The decision on a row that has failed already.
    pub(crate) fn failed() -> Self {
        Self { verdict: PostVerdict::Fail, reason: None, after: None, rule: None }
    }
}

impl RuleSet {
    /// Compiles rules.
    pub fn compile(rules: &[Rule]) -> Result<Self, RuleError> {
        let mut environment = template::environment();
        for (index, rule) in rules.iter().enumerate() {
            let compile_error = |part| {
                move |error: minijinja::Error| RuleError {
                    index,
                    part,
                    error: TemplateError::from_engine(&error),
                }
            };
            let guard_error = |part| move |error| RuleError { index, part, error };
            template::guard_expression(&rule.when).map_err(guard_error("when"))?;
            template::guard(rule.reason.as_deref().unwrap_or_default()).map_err(guard_error("reason"))?;
            environment.compile_expression_owned(rule.when.clone()).map_err(compile_error("when"))?;
            // An expression borrows its environment and could not be stored beside it; a template
            // can.
            let test = format!("{{% if {} %}}1{{% endif %}}", rule.when);
            environment.add_template_owned(when(index), test).map_err(compile_error("when"))?;
            if let Some(text) = &rule.reason {
                let added = environment.add_template_owned(reason(index), text.clone());
                added.map_err(compile_error("reason"))?;
            }
        }
        Ok(Self { environment, rules: rules.to_vec() })
    }

    /// Decides. An error means that a rule cannot be evaluated with this reply.
    pub fn decide(&self, facts: &RuleInput<'_>) -> Result<RuleDecision, String> {
        let variables = variables(facts);
        let mut decision = by_reply(facts.reply);
        for (index, rule) in self.rules.iter().enumerate() {
            if self.matches(index, &variables)? {
                decision = self.by_rule(index, rule, facts, &variables);
                break;
            }
        }
        Ok(finalise(decision, facts))
    }

    /// The names that rule `index` uses, `answer.confidence` as written, and the part of the rule
    /// they are in.
    pub fn names(&self, index: usize) -> Vec<(&'static str, String)> {
        let Some(rule) = self.rules.get(index) else { return Vec::new() };
        let in_when = template::names_in(&self.environment, &rule.when);
        let in_reason = template::names(&self.environment, &reason(index));
        let tagged = in_when.into_iter().map(|name| ("when", name));
        tagged.chain(in_reason.into_iter().map(|name| ("reason", name))).collect()
    }

    /// Evaluates every rule with an empty answer, to find functions and filters that no answer
    /// could make valid.
    pub(crate) fn dry_run(&self) -> Result<(), RuleError> {
        let variables = context! {
            answer => Value::from_pairs(std::iter::empty::<(&str, Value)>()),
            status => "success", error_code => (), error_message => (),
            text => "", finish_reason => "stop", attempt => 1,
            steps => Value::from_pairs(std::iter::empty::<(&str, Value)>()),
        };
        for index in 0..self.rules.len() {
            for (part, name) in [("when", when(index)), ("reason", reason(index))] {
                let Ok(template) = self.environment.get_template(&name) else { continue };
                match template.render(&variables) {
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

    fn matches(&self, index: usize, variables: &Value) -> Result<bool, String> {
        match self.environment.get_template(&when(index)).and_then(|test| test.render(variables)) {
            Ok(output) => Ok(!output.is_empty()),
            Err(error) if template::is_undefined(&error) => Ok(false),
            Err(error) => {
                let error = TemplateError::from_engine(&error);
                Err(format!("rule {}: `when`: {error}", index + 1))
            }
        }
    }

    fn by_rule(&self, index: usize, rule: &Rule, facts: &RuleInput<'_>, variables: &Value) -> RuleDecision {
        // If the reason cannot be rendered, the decision still holds.
        let written = self.environment.get_template(&reason(index));
        let written = written.and_then(|reason| reason.render(variables)).ok();
        let reason = written.unwrap_or_else(|| format!("by rule: {}", rule.when));
        let retry_after = facts.reply.error.as_ref().and_then(|error| error.retry_after);
        RuleDecision {
            verdict: rule.then,
            reason: Some(reason),
            after: rule.after.or(retry_after),
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

/// The decision without a matching rule.
fn by_reply(reply: &RowReply) -> RuleDecision {
    let Some(error) = reply.error.as_ref().filter(|_| !reply.is_skipped()) else {
        return RuleDecision { verdict: PostVerdict::Success, reason: None, after: None, rule: None };
    };
    let verdict = if error.retryable { PostVerdict::Retry } else { PostVerdict::Fail };
    let reason = Some(format!("{}: {}", error.code, error.message));
    RuleDecision { verdict, reason, after: error.retry_after, rule: None }
}

/// Drops fields that the verdict does not use; the last RETRY becomes FAIL.
fn finalise(decision: RuleDecision, facts: &RuleInput<'_>) -> RuleDecision {
    let RuleDecision { verdict, reason, after, rule } = decision;
    match verdict {
        PostVerdict::Success => RuleDecision { verdict, reason: None, after: None, rule },
        PostVerdict::Retry if !facts.is_last_attempt => RuleDecision { verdict, reason, after, rule },
        PostVerdict::Retry => {
            let reason = reason.map(|reason| format!("{reason} (after {})", attempts(facts)));
            RuleDecision { verdict: PostVerdict::Fail, reason, after: None, rule }
        }
        PostVerdict::Fail => RuleDecision { verdict, reason, after: None, rule },
    }
}

fn attempts(facts: &RuleInput<'_>) -> String {
    match facts.attempt {
        1 => "1 attempt".to_owned(),
        many => format!("{many} attempts"),
    }
}

fn variables(facts: &RuleInput<'_>) -> Value {
    let RuleInput { reply, attempt, answers, .. } = *facts;
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
        steps => Value::from(Serde(answers)),
    }
}
