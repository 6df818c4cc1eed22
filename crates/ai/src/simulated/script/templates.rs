//! Compiles, checks and runs the expressions and templates of a script.
//!
//! The check: they parse, use no unknown variable, and (as far as a trial shows) no unknown filter.
//! What depends on a prompt can still fail when that prompt arrives.

use std::collections::HashSet;
use std::sync::LazyLock;

use longshore::suggestion;
use minijinja::{Environment, Error, ErrorKind, Expression, UndefinedBehavior, Value};

/// Steps of one rendering, and deepest nesting: an endless loop in a script must not block a
/// worker.
const FUEL: u64 = 1_000_000;
const MAX_DEPTH: usize = 100;

/// Longest expression, and longest template that is not plain text. Minijinja follows long chains
/// (`1+1+1…`, `elif` after `elif`) by recursion; ten thousand would overflow the stack and kill the
/// process.
const MAX_SOURCE_BYTES: usize = 4000;

/// Expressions borrow their environment, and need only its settings.
static EXPRESSIONS: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_DEPTH);
    environment
}

/// The templates of one script.
pub(super) struct Templates {
    environment: Environment<'static>,
    use_n: bool,
}

/// An error in an expression or template, and its line, from 0.
pub(super) struct TemplateError {
    pub(super) line: usize,
    pub(super) message: String,
}

impl Templates {
    pub(super) fn new() -> Self {
        Self { environment: environment(), use_n: false }
    }

    /// Whether any expression or template uses `n`.
    pub(super) fn use_n(&self) -> bool {
        self.use_n
    }

    /// Compiles an expression over `names`.
    pub(super) fn expression(
        &mut self,
        source: &str,
        names: &[&str],
    ) -> Result<Expression<'static, 'static>, TemplateError> {
        check_length(source)?;
        let expression = EXPRESSIONS.compile_expression_owned(source.to_owned())?;
        self.check_names(expression.undeclared_variables(false), names)?;
        check_trial(expression.eval(trial(names)))?;
        Ok(expression)
    }

    /// Compiles a template over `names` and stores it as `name`.
    pub(super) fn add(&mut self, name: &str, source: &str, names: &[&str]) -> Result<(), TemplateError> {
        if source.contains("{{") || source.contains("{%") {
            check_length(source)?;
        }
        self.environment.add_template_owned(name.to_owned(), source.to_owned())?;
        let template = self.environment.get_template(name)?;
        let used = template.undeclared_variables(false);
        let tried = template.render(trial(names)).map(drop);
        self.check_names(used, names)?;
        check_trial(tried)
    }

    /// Renders the template stored as `name`.
    pub(super) fn render(&self, name: &str, names: Value) -> Result<String, Error> {
        self.environment.get_template(name)?.render(names)
    }

    fn check_names(&mut self, used: HashSet<String>, known: &[&str]) -> Result<(), TemplateError> {
        self.use_n |= used.contains("n");
        let global = |name: &str| EXPRESSIONS.globals().any(|(global, _)| global == name);
        let unknown = used.iter().filter(|name| !known.contains(&name.as_str()) && !global(name));
        // The smallest, so that the same script always gets the same message.
        let Some(name) = unknown.min() else { return Ok(()) };
        let message = format!("unknown name `{name}`{}", suggestion(name, known.iter().copied()));
        Err(TemplateError { line: 0, message })
    }
}

fn check_length(source: &str) -> Result<(), TemplateError> {
    if source.len() <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    let message = format!("longer than {MAX_SOURCE_BYTES} bytes, the most for an expression or a template");
    Err(TemplateError { line: 0, message })
}

/// A value for every name. Numbers as text, which most filters accept.
fn trial(names: &[&str]) -> Value {
    Value::from_pairs(names.iter().map(|name| (*name, "1")))
}

/// Reports only errors that would occur for every prompt.
fn check_trial<T>(tried: Result<T, Error>) -> Result<(), TemplateError> {
    use ErrorKind::{TemplateNotFound, UnknownFilter, UnknownFunction, UnknownTest};
    let hopeless = [TemplateNotFound, UnknownFilter, UnknownFunction, UnknownTest];
    match tried {
        Err(error) if hopeless.contains(&error.kind()) => Err(error.into()),
        _ => Ok(()),
    }
}

impl From<Error> for TemplateError {
    fn from(error: Error) -> Self {
        Self { line: error.line().unwrap_or(1).saturating_sub(1), message: error_message(&error) }
    }
}

/// An error's message without our names for templates.
pub(super) fn error_message(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
