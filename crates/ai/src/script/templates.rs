//! The expressions and templates of a script: how they are compiled, checked and run.
//!
//! Checked means: they parse, name nothing unknown, and (as far as a trial shows) use no unknown
//! filter. What depends on a prompt can still fail when that prompt comes.

use std::collections::HashSet;
use std::sync::LazyLock;

use minijinja::{Environment, Error, ErrorKind, Expression, UndefinedBehavior, Value};

use super::source::meant;

/// Steps of one rendering, and deepest nesting: a script that loops for ever must not take a
/// worker with it.
const FUEL: u64 = 1_000_000;
const DEEPEST: usize = 100;

/// Longest expression, and longest template with anything but text in it. Minijinja follows long
/// chains (`1+1+1…`, `elif` after `elif`) by recursion; ten thousand would take the stack, and with
/// it the process.
const LONGEST: usize = 4000;

/// Expressions borrow their environment, and need nothing of it but the settings.
static EXPRESSIONS: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEEPEST);
    environment
}

/// The templates of one script.
pub(super) struct Templates {
    environment: Environment<'static>,
    use_n: bool,
}

/// What is wrong with an expression or a template, and in which of its lines, from 0.
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) message: String,
}

impl Templates {
    pub(super) fn new() -> Self {
        Self { environment: environment(), use_n: false }
    }

    /// Whether any that was added asks for `n`.
    pub(super) fn use_n(&self) -> bool {
        self.use_n
    }

    /// Compiles an expression over `names`.
    pub(super) fn expression(
        &mut self,
        source: &str,
        names: &[&str],
    ) -> Result<Expression<'static, 'static>, Fault> {
        check_length(source)?;
        let expression = EXPRESSIONS.compile_expression_owned(source.to_owned())?;
        self.check_names(expression.undeclared_variables(false), names)?;
        check_trial(expression.eval(trial(names)))?;
        Ok(expression)
    }

    /// Compiles a template over `names` and keeps it under `name`.
    pub(super) fn add(&mut self, name: &str, source: &str, names: &[&str]) -> Result<(), Fault> {
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

    /// Renders the template kept under `name`.
    pub(super) fn render(&self, name: &str, names: Value) -> Result<String, Error> {
        self.environment.get_template(name)?.render(names)
    }

    fn check_names(&mut self, used: HashSet<String>, known: &[&str]) -> Result<(), Fault> {
        self.use_n |= used.contains("n");
        let global = |name: &str| EXPRESSIONS.globals().any(|(global, _)| global == name);
        let unknown = used.iter().filter(|name| !known.contains(&name.as_str()) && !global(name));
        // The least, so that the same script is always told the same.
        let Some(name) = unknown.min() else { return Ok(()) };
        let message = format!("unknown name `{name}`{}", meant(name, known.iter().copied()));
        Err(Fault { line: 0, message })
    }
}

fn check_length(source: &str) -> Result<(), Fault> {
    if source.len() <= LONGEST {
        return Ok(());
    }
    let message = format!("longer than {LONGEST} bytes, the most for an expression or a template");
    Err(Fault { line: 0, message })
}

/// Something for every name. Numbers as text, which most filters accept.
fn trial(names: &[&str]) -> Value {
    Value::from_pairs(names.iter().map(|name| (*name, "1")))
}

/// Only what would be wrong for every prompt counts.
fn check_trial<T>(tried: Result<T, Error>) -> Result<(), Fault> {
    use ErrorKind::{TemplateNotFound, UnknownFilter, UnknownFunction, UnknownTest};
    let hopeless = [TemplateNotFound, UnknownFilter, UnknownFunction, UnknownTest];
    match tried {
        Err(error) if hopeless.contains(&error.kind()) => Err(error.into()),
        _ => Ok(()),
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { line: error.line().unwrap_or(1).saturating_sub(1), message: words(&error) }
    }
}

/// An error's words without our names for templates.
pub(super) fn words(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
