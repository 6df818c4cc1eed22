//! A script as it is written: TOML, its keys, and every mistake with its line.

use std::ops::Range;
use std::time::Duration;

use jiff::SignedDuration;
use regex::Regex;
use serde::Deserialize;
use toml::Spanned;

use super::source::{Source, meant};
use super::templates::Templates;
use super::{Act, Rule, Script, ScriptError};
use crate::ask::{Again, AskError, Code};
use crate::simulated::FOREVER;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    answer: Vec<Spanned<WrittenAnswer>>,
}

/// `[[answer]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAnswer {
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

/// Names that every expression and template knows.
const OWN_NAMES: [&str; 2] = ["prompt", "n"];

/// Reads and compiles a script.
pub(super) fn read(text: &str) -> Result<Script, ScriptError> {
    let source = Source(text);
    let written: Written = toml::from_str(text).map_err(|error| source.refusal(&error))?;
    if written.answer.is_empty() {
        return Err(source.fault(0, "the script has no [[answer]]"));
    }
    let mut script = Script { rules: vec![], templates: Templates::new() };
    for answer in written.answer {
        let at = answer.span().start;
        let reader = Reader { source, at, answer: answer.into_inner() };
        let rule = reader.rule(script.rules.len(), &mut script.templates)?;
        script.rules.push(rule);
    }
    Ok(script)
}

/// One answer in its file.
struct Reader<'a> {
    source: Source<'a>,
    at: usize,
    answer: WrittenAnswer,
}

impl Reader<'_> {
    fn rule(&self, index: usize, templates: &mut Templates) -> Result<Rule, ScriptError> {
        self.check_company()?;
        let pattern = self.answer.pattern.as_ref().map(|text| self.pattern(text)).transpose()?;
        let names = pattern.iter().flat_map(|pattern| pattern.capture_names().flatten());
        let names: Vec<&str> = names.chain(OWN_NAMES).collect();
        let when = self.answer.when.as_ref();
        let when = when.map(|text| {
            let compiled = templates.expression(text.get_ref(), &names);
            compiled.map_err(|fault| self.source.inside(text, &fault))
        });
        Ok(Rule {
            line: self.source.line(self.at),
            when: when.transpose()?,
            delay: self.delay()?,
            act: self.act(index, &names, templates)?,
            pattern,
        })
    }

    /// One of `reply`, `error` and `hang`, and only what goes with it.
    fn check_company(&self) -> Result<(), ScriptError> {
        let answer = &self.answer;
        let hangs = self.hangs();
        let given = [answer.reply.is_some(), answer.error.is_some(), hangs];
        if given.iter().filter(|given| **given).count() != 1 {
            let message = "an answer has either `reply`, or `error`, or `hang = true`";
            return Err(self.source.fault(self.at, message));
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
            Some(span) if !allowed => Err(self.source.fault(span.start, otherwise)),
            _ => Ok(()),
        }
    }

    fn hangs(&self) -> bool {
        self.answer.hang.as_ref().is_some_and(|hang| *hang.get_ref())
    }

    fn pattern(&self, text: &Spanned<String>) -> Result<Regex, ScriptError> {
        let at = text.span().start;
        let pattern = Regex::new(text.get_ref())
            .map_err(|error| self.source.fault(at, format!("bad regex: {}", gist(&error))))?;
        match pattern.capture_names().flatten().find(|name| OWN_NAMES.contains(name)) {
            Some(name) => {
                let message = format!("a group cannot be called `{name}`: that name is taken");
                Err(self.source.fault(at, message))
            }
            None => Ok(pattern),
        }
    }

    fn delay(&self) -> Result<Option<Duration>, ScriptError> {
        if self.hangs() { Ok(Some(FOREVER)) } else { self.source.span(self.answer.delay.as_ref()) }
    }

    fn act(
        &self,
        index: usize,
        names: &[&str],
        templates: &mut Templates,
    ) -> Result<Act<String>, ScriptError> {
        if let Some(reply) = &self.answer.reply {
            let text = format!("answer {}", index + 1);
            let added = templates.add(&text, reply.get_ref(), names);
            added.map_err(|fault| self.source.inside(reply, &fault))?;
            let tokens_out = self.answer.tokens_out.as_ref().map(|tokens| *tokens.get_ref());
            return Ok(Act::Reply { text, tokens_out });
        }
        Ok(Act::Error(self.error()?))
    }

    /// What is said instead of an answer. Who hangs is never heard; its time runs out first.
    fn error(&self) -> Result<AskError, ScriptError> {
        let code = self.answer.error.as_ref().map(|name| self.source.code(name)).transpose()?;
        let message = self.answer.message.as_ref().map(Spanned::get_ref);
        let message = message.cloned().unwrap_or_else(|| "the script says so".into());
        let code = code.unwrap_or(Code::Timeout);
        let retry_after = self.source.span(self.answer.retry_after.as_ref())?;
        let again = if code.is_retryable() { Again::Later } else { Again::Never };
        let error = AskError { retry_after, again, ..AskError::new(code, message) };
        // As of a real provider: whoever is late may have been at work.
        Ok(if code == Code::Timeout { error.maybe_billed() } else { error })
    }
}

/// Values that are written as text.
impl Source<'_> {
    fn code(self, name: &Spanned<String>) -> Result<Code, ScriptError> {
        let given = name.get_ref();
        CODES.into_iter().find(|code| code.as_str() == given).ok_or_else(|| {
            let meant = meant(given, CODES.iter().map(|code| code.as_str()));
            self.fault(name.span().start, format!("unknown error code `{given}`{meant}"))
        })
    }

    fn span(self, text: Option<&Spanned<String>>) -> Result<Option<Duration>, ScriptError> {
        let Some(text) = text else { return Ok(None) };
        let written = text.get_ref();
        let length = written.parse::<SignedDuration>().ok();
        let length = length.and_then(|length| Duration::try_from(length).ok());
        let bad = || format!("`{written}` is not a length of time, as 50ms, 2s or 1m30s");
        length.map(Some).ok_or_else(|| self.fault(text.span().start, bad()))
    }
}

/// The last line of a regex' complaint; those before draw the pattern.
fn gist(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}
