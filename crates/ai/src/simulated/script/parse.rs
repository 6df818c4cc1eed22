//! Parses a script's TOML; every error has its line.

use std::ops::Range;
use std::time::Duration;

use longshore::{duration, suggestion};
use regex::Regex;
use serde::Deserialize;
use toml::Spanned;

use super::source::Source;
use super::templates::Templates;
use super::{Rule, RuleAction, ScriptError, SimulatorScript};
use crate::model_api::{AskError, Code, Retryability};
use crate::simulated::FOREVER;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptToml {
    #[serde(default)]
    answer: Vec<Spanned<AnswerToml>>,
}

/// `[[answer]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerToml {
    #[serde(rename = "match")]
    pattern: Option<Spanned<String>>,
    when: Option<Spanned<String>>,
    reply: Option<Spanned<String>>,
    error: Option<Spanned<String>>,
    message: Option<Spanned<String>>,
    retry_after: Option<Spanned<String>>,
    delay: Option<Spanned<String>>,
    hang: Option<Spanned<bool>>,
    tokens_out: Option<Spanned<u64>>,
}

/// The codes that a script may answer with.
const CODES: [Code; 9] = [
    Code::InvalidRequest,
    Code::ProfileNotFound,
    Code::ProfileDisabled,
    Code::RateLimited,
    Code::OverBudget,
    Code::ProviderAuth,
    Code::ProviderError,
    Code::Timeout,
    Code::Internal,
];

/// Variables of every expression and template.
const BUILTIN_VARIABLES: [&str; 2] = ["prompt", "n"];

/// Parses and compiles a script.
pub(super) fn parse(text: &str) -> Result<SimulatorScript, ScriptError> {
    let source = Source(text);
    let toml: ScriptToml = toml::from_str(text).map_err(|error| source.toml_error(&error))?;
    if toml.answer.is_empty() {
        return Err(source.error(0, "the script has no [[answer]]"));
    }
    let mut script = SimulatorScript { rules: vec![], templates: Templates::new() };
    for answer in toml.answer {
        let at = answer.span().start;
        let parser = AnswerParser { source, at, answer: answer.into_inner() };
        let rule = parser.rule(script.rules.len(), &mut script.templates)?;
        script.rules.push(rule);
    }
    Ok(script)
}

/// One answer in its file.
struct AnswerParser<'a> {
    source: Source<'a>,
    at: usize,
    answer: AnswerToml,
}

impl AnswerParser<'_> {
    fn rule(&self, index: usize, templates: &mut Templates) -> Result<Rule, ScriptError> {
        self.check_keys()?;
        let pattern = self.answer.pattern.as_ref().map(|text| self.pattern(text)).transpose()?;
        let names = pattern.iter().flat_map(|pattern| pattern.capture_names().flatten());
        let names: Vec<&str> = names.chain(BUILTIN_VARIABLES).collect();
        let when = self.answer.when.as_ref();
        let when = when.map(|text| {
            let compiled = templates.expression(text.get_ref(), &names);
            compiled.map_err(|error| self.source.error_inside(text, &error))
        });
        Ok(Rule {
            line: self.source.line(self.at),
            when: when.transpose()?,
            delay: self.delay()?,
            action: self.action(index, &names, templates)?,
            pattern,
        })
    }

    /// Exactly one of `reply`, `error` and `hang`, and only the keys that go with it.
    fn check_keys(&self) -> Result<(), ScriptError> {
        let answer = &self.answer;
        let hangs = self.hangs();
        let given = [answer.reply.is_some(), answer.error.is_some(), hangs];
        if given.iter().filter(|given| **given).count() != 1 {
            let message = "an answer has either `reply`, or `error`, or `hang = true`";
            return Err(self.source.error(self.at, message));
        }
        let message = answer.message.as_ref().map(Spanned::span);
        let retry_after = answer.retry_after.as_ref().map(Spanned::span);
        let tokens_out = answer.tokens_out.as_ref().map(Spanned::span);
        let delay = answer.delay.as_ref().map(Spanned::span);
        self.only_if(answer.error.is_some(), message, "`message` goes with `error`")?;
        self.only_if(answer.error.is_some(), retry_after, "`retry_after` goes with `error`")?;
        self.only_if(answer.reply.is_some(), tokens_out, "`tokens_out` goes with `reply`")?;
        self.only_if(!hangs, delay, "`hang = true` has no `delay`: it never answers")
    }

    fn only_if(
        &self,
        allowed: bool,
        given: Option<Range<usize>>,
        otherwise: &str,
    ) -> Result<(), ScriptError> {
        match given {
            Some(span) if !allowed => Err(self.source.error(span.start, otherwise)),
            _ => Ok(()),
        }
    }

    fn hangs(&self) -> bool {
        self.answer.hang.as_ref().is_some_and(|hang| *hang.get_ref())
    }

    fn pattern(&self, text: &Spanned<String>) -> Result<Regex, ScriptError> {
        let at = text.span().start;
        let pattern = Regex::new(text.get_ref())
            .map_err(|error| self.source.error(at, format!("bad regex: {}", regex_message(&error))))?;
        match pattern.capture_names().flatten().find(|name| BUILTIN_VARIABLES.contains(name)) {
            Some(name) => {
                let message = format!("a group cannot be called `{name}`: that name is taken");
                Err(self.source.error(at, message))
            }
            None => Ok(pattern),
        }
    }

    fn delay(&self) -> Result<Option<Duration>, ScriptError> {
        if self.hangs() { Ok(Some(FOREVER)) } else { self.source.duration(self.answer.delay.as_ref()) }
    }

    fn action(
        &self,
        index: usize,
        names: &[&str],
        templates: &mut Templates,
    ) -> Result<RuleAction<String>, ScriptError> {
        if let Some(reply) = &self.answer.reply {
            let text = format!("answer {}", index + 1);
            let added = templates.add(&text, reply.get_ref(), names);
            added.map_err(|error| self.source.error_inside(reply, &error))?;
            let tokens_out = self.answer.tokens_out.as_ref().map(|tokens| *tokens.get_ref());
            return Ok(RuleAction::Reply { text, tokens_out });
        }
        Ok(RuleAction::Error(self.error()?))
    }

    /// The error that is answered. `hang` never returns it: the deadline comes first.
    fn error(&self) -> Result<AskError, ScriptError> {
        let code = self.answer.error.as_ref().map(|name| self.source.code(name)).transpose()?;
        let message = self.answer.message.as_ref().map(Spanned::get_ref);
        let message = message.cloned().unwrap_or_else(|| "the script says so".into());
        let code = code.unwrap_or(Code::Timeout);
        let retry_after = self.source.duration(self.answer.retry_after.as_ref())?;
        let again = if code.is_retryable() { Retryability::Later } else { Retryability::Never };
        let error = AskError { retry_after, retry: again, ..AskError::new(code, message) };
        // As with a real provider: a late answer may have been billed.
        Ok(if code == Code::Timeout { error.maybe_billed() } else { error })
    }
}

/// Values that are written as strings.
impl Source<'_> {
    fn code(self, name: &Spanned<String>) -> Result<Code, ScriptError> {
        let given = name.get_ref();
        CODES.into_iter().find(|code| code.as_str() == given).ok_or_else(|| {
            let hint = suggestion(given, CODES.iter().map(|code| code.as_str()));
            self.error(name.span().start, format!("unknown error code `{given}`{hint}"))
        })
    }

    fn duration(self, text: Option<&Spanned<String>>) -> Result<Option<Duration>, ScriptError> {
        let Some(text) = text else { return Ok(None) };
        let length = duration::parse(text.get_ref());
        length.map(Some).map_err(|error| self.error(text.span().start, error.to_string()))
    }
}

/// The last line of a regex error; those before draw the pattern.
fn regex_message(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}
