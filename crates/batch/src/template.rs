//! The template engine: strict about names, limited in work, without includes or escaping.
//!
//! Shared by prompts ([`crate::prompt`]) and rules ([`crate::verdict_rules`]), which define the variables
//! of their templates.

use std::fmt;
use std::sync::Arc;

use longshore::SqlValue;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Object;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};

use crate::rows::Row;

/// Maximum steps of one rendering. A prompt with a thousand rows takes some ten thousand.
const MAX_FUEL: u64 = 2_000_000;

/// An error in a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// The line in the template, from 1.
    pub line: Option<usize>,
    /// The message.
    pub message: String,
}

impl TemplateError {
    /// The engine's message without the location in it.
    pub(crate) fn from_engine(error: &minijinja::Error) -> Self {
        let message = match (error.kind(), error.detail()) {
            (ErrorKind::OutOfFuel, _) => "it takes too many steps".to_owned(),
            (ErrorKind::UndefinedError, Some(detail)) => detail.to_owned(),
            (kind, Some(detail)) => format!("{kind}: {detail}"),
            (kind, None) => kind.to_string(),
        };
        Self { line: error.line().filter(|line| *line > 0), message }
    }
}

/// Whether an error is about an undefined value.
pub(crate) fn is_undefined(error: &minijinja::Error) -> bool {
    // Arithmetic with an undefined value is another kind of error; its message says so.
    let says_so = || error.detail().is_some_and(|detail| detail.ends_with("is undefined)"));
    error.kind() == ErrorKind::UndefinedError || says_so()
}

/// Whether an error lies in the template itself, whatever its values.
pub(crate) fn is_unknown_word(error: &minijinja::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnknownFilter
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownMethod
            | ErrorKind::TemplateNotFound
    )
}

/// An environment without templates. A block tag on a line of its own leaves no empty line.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(MAX_FUEL));
    environment.add_filter("quoted", |name: String| quoted(&name));
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.unwrap_or_default());
    environment
}

/// A display name quoted for an address header: `"Ann \"the quick\" Smith" <ann@example.org>`.
fn quoted(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    text.push('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// The undeclared names of a template, `row.vendor` as written, without built-in functions.
pub(crate) fn names(environment: &Environment<'_>, template: &str) -> Vec<String> {
    let Ok(template) = environment.get_template(template) else { return Vec::new() };
    without_globals(environment, template.undeclared_variables(true))
}

/// Like [`names`], for an expression.
pub(crate) fn names_in(environment: &Environment<'static>, expression: &str) -> Vec<String> {
    let Ok(expression) = environment.compile_expression_owned(expression.to_owned()) else {
        return Vec::new();
    };
    without_globals(environment, expression.undeclared_variables(true))
}

fn without_globals(environment: &Environment<'_>, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let built_in = |name: &String| {
        let first = name.split('.').next().unwrap_or_default();
        environment.globals().any(|(global, _)| global == first)
    };
    let mut names: Vec<String> = names.into_iter().filter(|name| !built_in(name)).collect();
    names.sort();
    names
}

/// The row as a template value.
pub(crate) fn row_value(row: &Row) -> Value {
    Value::from_pairs(row.columns.iter().map(|(name, value)| (name.as_str(), sql_value(value))))
}

fn sql_value(value: &SqlValue) -> Value {
    match value {
        SqlValue::Null => Value::from(()),
        SqlValue::Bool(value) => Value::from(*value),
        SqlValue::Int(value) => Value::from(*value),
        SqlValue::Real(value) => Value::from(*value),
        SqlValue::Text(value) => Value::from(value.as_str()),
        SqlValue::Blob(bytes) => Value::from_object(Blob(bytes.clone())),
    }
}

/// Bytes: rendered as their number, with the hexadecimal digits as `base16`.
#[derive(Debug)]
struct Blob(Vec<u8>);

impl Object for Blob {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let Blob(bytes) = &**self;
        match key.as_str()? {
            "base16" => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()),
            "size" => Some(bytes.len().into()),
            _ => None,
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

/// Maximum length of an expression, and of a tag.
const MAX_TAG_BYTES: usize = 4_000;
/// Maximum nesting of tags, and maximum number of `elif` in a template.
const MAX_NESTING: usize = 100;

/// Rejects templates that the engine would parse by deep recursion (`1+1+1…`, `elif` after `elif`):
/// a stack overflow would end the process.
pub(crate) fn guard(template: &str) -> Result<(), TemplateError> {
    let (mut depth, mut elifs) = (0_usize, 0_usize);
    for (at, tag) in tags(template) {
        let word = tag.trim_start_matches(['{', '%', '-', '+', ' ']).split_whitespace().next();
        match word {
            Some(word) if !tag.starts_with("{%") || word == "else" || word == "set" => {}
            Some("elif") => elifs += 1,
            Some(word) if word.starts_with("end") => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
        let problem = match () {
            () if tag.len() > MAX_TAG_BYTES => "a tag is longer than 4000 characters",
            () if depth > MAX_NESTING => "tags are nested more than 100 deep",
            () if elifs > MAX_NESTING => "there are more than 100 `elif`",
            () => continue,
        };
        let line = template[..at].matches('\n').count() + 1;
        return Err(TemplateError { line: Some(line), message: problem.to_owned() });
    }
    Ok(())
}

/// Like [`guard`], for an expression.
pub(crate) fn guard_expression(expression: &str) -> Result<(), TemplateError> {
    if expression.len() <= MAX_TAG_BYTES {
        return Ok(());
    }
    let message = "it is longer than 4000 characters".to_owned();
    Err(TemplateError { line: None, message })
}

/// Every tag with its offset; an unclosed tag extends to the end.
fn tags(template: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at =
            from + [template[from..].find("{{"), template[from..].find("{%")].into_iter().flatten().min()?;
        let close = if template[at..].starts_with("{{") { "}}" } else { "%}" };
        let end = template[at..].find(close).map_or(template.len(), |length| at + length + 2);
        from = end;
        Some((at, &template[at..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_the_stack_is_refused_with_its_line() {
        let long = format!("fine\n{{{{ {} }}}}", vec!["1"; 9_000].join("+"));
        let chain = format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}x".repeat(9_000));
        let nested = format!("{}{}", "{% if a %}".repeat(9_000), "{% endif %}".repeat(9_000));
        for (template, line) in [(long, 2), (chain, 1), (nested, 1)] {
            assert_eq!(guard(&template).unwrap_err().line, Some(line));
        }
        assert!(guard_expression(&"1+".repeat(9_000)).is_err());
    }

    #[test]
    fn a_long_prompt_is_not_a_deep_one() {
        let tags = "{% for x in xs %}{% if x %}{{ x }}{% else %}-{% endif %}{% endfor %}{% set y = 1 %}\n";
        assert_eq!(guard(&tags.repeat(2_000)), Ok(()));
        assert_eq!(guard("{{ open"), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_guarded(text in r"(\{\{|\}\}|\{%|%\}|elif|endif|if|é|\PC)*") {
            let _ = guard(&text);
        }
    }
}
