//! The prompt: a minijinja template over a row and its lists.
//!
//! The template's variables are the row's columns, the lists, and the whole row as `row`
//! (`row["unit price"]`, `{% for name in row %}`). NULL is `none`, and is rendered as `NULL`; a BLOB is rendered as its
//! size, and `.base16` has its bytes. An undefined name is an error,
//! so that no prompt with a gap is sent and paid for.
//!
//! ```
//! use longshore::SqlValue;
//! use longshore_batch::{prompt::PromptTemplate, rows::Row};
//!
//! let prompt = PromptTemplate::compile("Is {{ qty }} a sensible quantity?", "prompt.md")?;
//! let row = Row { columns: vec![("qty".into(), SqlValue::Int(12))] };
//! assert_eq!(prompt.render(&row, &Default::default()), Ok("Is 12 a sensible quantity?".into()));
//! # Ok::<(), longshore_batch::template::TemplateError>(())
//! ```

use std::collections::BTreeMap;

use longshore::byte_size;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};

use crate::rows::Row;
use crate::template::{self, TemplateError};

/// The variable that holds the whole row.
pub const WHOLE_ROW: &str = "row";

/// Maximum number of names listed in an error.
const MAX_LISTED_NAMES: usize = 30;

/// A compiled template. Rendering takes `&self`, so all workers share one.
#[derive(Debug)]
pub struct PromptTemplate {
    environment: Environment<'static>,
    name: String,
}

impl PromptTemplate {
    /// Compiles a template; `name` is its file, for messages.
    pub fn compile(template: &str, name: &str) -> Result<Self, TemplateError> {
        Self::compile_with(template, name, AutoEscape::None)
    }

    /// Compiles an HTML template: values of the row are escaped.
    pub fn html(template: &str, name: &str) -> Result<Self, TemplateError> {
        Self::compile_with(template, name, AutoEscape::Html)
    }

    fn compile_with(template: &str, name: &str, auto_escape: AutoEscape) -> Result<Self, TemplateError> {
        template::guard(template)?;
        let mut environment = template::environment();
        let null = if auto_escape == AutoEscape::Html { "" } else { "NULL" };
        environment.set_auto_escape_callback(move |_| auto_escape.clone());
        environment.set_formatter(move |out, state, value| match value.is_none() {
            true => Ok(out.write_str(null)?),
            false => minijinja::escape_formatter(out, state, value),
        });
        let added = environment.add_template_owned(name.to_owned(), template.to_owned());
        added.map_err(|error| TemplateError::from_engine(&error))?;
        Ok(Self { environment, name: name.to_owned() })
    }

    /// Renders the prompt for a row. The error has the template's name, the line, the problem and
    /// the names that exist.
    pub fn render(&self, row: &Row, lists: &BTreeMap<String, Vec<Row>>) -> Result<String, String> {
        self.render_with(&TemplateContext::new(row, lists))
    }

    /// Renders with a context that several templates share.
    pub fn render_with(&self, context: &TemplateContext<'_>) -> Result<String, String> {
        let text = self.run(&context.names).map_err(|error| self.error_message(&error, context.row))?;
        if text.trim().is_empty() {
            return Err(format!("{}: the prompt is empty", self.name));
        }
        Ok(text)
    }

    /// The names that the template uses: columns, lists, `row.column`.
    pub fn names(&self) -> Vec<String> {
        template::names(&self.environment, &self.name)
    }

    /// Renders with made-up rows, to find names and filters that no row could make valid.
    pub(crate) fn dry_run(
        &self,
        row: &Row,
        lists: &BTreeMap<String, Row>,
        steps: &[&str],
    ) -> Result<(), TemplateError> {
        let lists = lists.iter().map(|(name, row)| (name.as_str(), repeated_row(row)));
        let steps = steps.iter().map(|name| (*name, Value::from_object(AnyAnswer)));
        match self.run(&names(row, lists.chain(steps))) {
            Err(error) if template::is_unknown_word(&error) || template::is_undefined(&error) => {
                Err(TemplateError::from_engine(&error))
            }
            _ => Ok(()),
        }
    }

    fn run(&self, names: &Value) -> Result<String, minijinja::Error> {
        self.environment.get_template(&self.name)?.render(names)
    }

    fn error_message(&self, error: &minijinja::Error, row: &Row) -> String {
        let TemplateError { line, message } = TemplateError::from_engine(error);
        let line = line.map_or(String::new(), |line| format!(", line {line}"));
        let mut text = format!("{}{line}: {message}", self.name);
        if template::is_undefined(error) {
            let names = row.columns.iter().map(|(name, _)| name.as_str()).take(MAX_LISTED_NAMES);
            text += &format!("; the row has: {}", names.collect::<Vec<_>>().join(", "));
        }
        text
    }
}

/// Why a prompt must not be sent: it has more than `max` bytes.
pub fn prompt_too_long(prompt: &str, max: u64) -> Option<String> {
    let length = prompt.len() as u64;
    (length > max).then(|| {
        let (length, max) = (byte_size::format(length), byte_size::format(max));
        format!("the prompt has {length}, `ai.max_prompt` is {max}")
    })
}

/// The variables of templates: a row and its lists.
#[derive(Debug)]
pub struct TemplateContext<'a> {
    row: &'a Row,
    names: Value,
}

impl<'a> TemplateContext<'a> {
    /// The variables for a row and its named lists.
    pub fn new(row: &'a Row, lists: &BTreeMap<String, Vec<Row>>) -> Self {
        let lists = lists
            .iter()
            .map(|(name, rows)| (name.as_str(), rows.iter().map(template::row_value).collect::<Value>()));
        Self { row, names: names(row, lists) }
    }

    /// The variables for a row, its lists and the answers of earlier steps.
    pub fn with_answers(
        row: &'a Row,
        lists: &BTreeMap<String, Vec<Row>>,
        answers: &BTreeMap<String, serde_json::Value>,
    ) -> Self {
        let lists = lists
            .iter()
            .map(|(name, rows)| (name.as_str(), rows.iter().map(template::row_value).collect::<Value>()));
        let answers = answers.iter().map(|(name, answer)| (name.as_str(), Value::from(Serde(answer))));
        Self { row, names: names(row, lists.chain(answers)) }
    }
}

fn names<'a>(row: &'a Row, lists: impl Iterator<Item = (&'a str, Value)>) -> Value {
    let whole = template::row_value(row);
    let columns = row
        .columns
        .iter()
        .filter_map(|(name, _)| whole.get_attr(name).ok().map(|value| (name.as_str(), value)));
    Value::from_pairs(columns.chain(lists).chain([(WHOLE_ROW, whole.clone())]))
}

/// A list of length one that returns its row at every index, so that `items[3]` is valid in a dry
/// run.
fn repeated_row(row: &Row) -> Value {
    Value::from_object(RepeatedRow(template::row_value(row)))
}

#[derive(Debug)]
struct RepeatedRow(Value);

impl minijinja::value::Object for RepeatedRow {
    fn repr(self: &std::sync::Arc<Self>) -> minijinja::value::ObjectRepr {
        minijinja::value::ObjectRepr::Seq
    }

    fn get_value(self: &std::sync::Arc<Self>, _index: &Value) -> Option<Value> {
        Some(self.0.clone())
    }

    fn enumerate(self: &std::sync::Arc<Self>) -> minijinja::value::Enumerator {
        minijinja::value::Enumerator::Seq(1)
    }
}

/// The answer of a step in a dry run: has every field.
#[derive(Debug)]
struct AnyAnswer;

impl minijinja::value::Object for AnyAnswer {
    fn get_value(self: &std::sync::Arc<Self>, _field: &Value) -> Option<Value> {
        Some(Value::from_object(Self))
    }
}
