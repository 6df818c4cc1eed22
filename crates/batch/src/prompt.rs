//! The prompt: a minijinja template over a row and its lists.
//!
//! A template sees the row's columns by their names, the lists by theirs, and the whole row as
//! `row` (`row["unit price"]`, `{% for name in row %}`). NULL is `none`. A name that is not there
//! is an error, never an empty place in a question that costs money.
//!
//! ```
//! use longshore::SqlValue;
//! use longshore_batch::{prompt::Prompt, rows::Row};
//!
//! let prompt = Prompt::compile("Is {{ qty }} a sensible quantity?", "prompt.md")?;
//! let row = Row { columns: vec![("qty".into(), SqlValue::Int(12))] };
//! assert_eq!(prompt.render(&row, &Default::default()), Ok("Is 12 a sensible quantity?".into()));
//! # Ok::<(), longshore_batch::template::TemplateError>(())
//! ```

use std::collections::BTreeMap;

use minijinja::{AutoEscape, Environment, Value};

use crate::rows::Row;
use crate::template::{self, TemplateError};

/// The name under which a template sees the whole row.
pub const WHOLE_ROW: &str = "row";

/// Names listed in an error; beyond that, nobody reads them.
const MOST_NAMES: usize = 30;

/// A compiled template. Rendering takes `&self`: one serves all workers.
#[derive(Debug)]
pub struct Prompt {
    environment: Environment<'static>,
    name: String,
}

impl Prompt {
    /// Compiles a template; `name` is where it was written, for messages.
    pub fn compile(template: &str, name: &str) -> Result<Self, TemplateError> {
        Self::escaped(template, name, AutoEscape::None)
    }

    /// The same for a page: what rows say is text in it, and never a tag.
    pub fn html(template: &str, name: &str) -> Result<Self, TemplateError> {
        Self::escaped(template, name, AutoEscape::Html)
    }

    fn escaped(template: &str, name: &str, how: AutoEscape) -> Result<Self, TemplateError> {
        template::guard(template)?;
        let mut environment = template::environment();
        environment.set_auto_escape_callback(move |_| how.clone());
        let added = environment.add_template_owned(name.to_owned(), template.to_owned());
        added.map_err(|error| TemplateError::from_engine(&error))?;
        Ok(Self { environment, name: name.to_owned() })
    }

    /// The prompt for a row. The error says template, line, what is wrong and which names there
    /// are.
    pub fn render(&self, row: &Row, lists: &BTreeMap<String, Vec<Row>>) -> Result<String, String> {
        self.render_seen(&Seen::new(row, lists))
    }

    /// The same, where several templates see one row.
    pub fn render_seen(&self, seen: &Seen<'_>) -> Result<String, String> {
        let text = self.run(&seen.names).map_err(|error| self.explain(&error, seen.row))?;
        if text.trim().is_empty() {
            return Err(format!("{}: the prompt is empty", self.name));
        }
        Ok(text)
    }

    /// The names the template asks for: columns, lists, `row.column`.
    pub fn names(&self) -> Vec<String> {
        template::names(&self.environment, &self.name)
    }

    /// A rendering with made-up rows, to find words that no row could make right.
    pub(crate) fn rehearse(
        &self,
        row: &Row,
        lists: &BTreeMap<String, Row>,
    ) -> Result<(), TemplateError> {
        let lists = lists.iter().map(|(name, row)| (name.as_str(), endless(row)));
        match self.run(&names(row, lists)) {
            Err(error) if template::is_unknown_word(&error) || template::is_undefined(&error) => {
                Err(TemplateError::from_engine(&error))
            }
            _ => Ok(()),
        }
    }

    fn run(&self, names: &Value) -> Result<String, minijinja::Error> {
        self.environment.get_template(&self.name)?.render(names)
    }

    fn explain(&self, error: &minijinja::Error, row: &Row) -> String {
        let TemplateError { line, message } = TemplateError::from_engine(error);
        let line = line.map_or(String::new(), |line| format!(", line {line}"));
        let mut text = format!("{}{line}: {message}", self.name);
        if template::is_undefined(error) {
            let names = row.columns.iter().map(|(name, _)| name.as_str()).take(MOST_NAMES);
            text += &format!("; the row has: {}", names.collect::<Vec<_>>().join(", "));
        }
        text
    }
}

/// What templates see of a row and its lists.
#[derive(Debug)]
pub struct Seen<'a> {
    row: &'a Row,
    names: Value,
}

impl<'a> Seen<'a> {
    /// A row, and its lists by their names.
    pub fn new(row: &'a Row, lists: &BTreeMap<String, Vec<Row>>) -> Self {
        let lists = lists.iter().map(|(name, rows)| {
            (name.as_str(), rows.iter().map(template::row_value).collect::<Value>())
        });
        Self { row, names: names(row, lists) }
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

/// A list of one row that has that row at every index.
fn endless(row: &Row) -> Value {
    Value::from_object(Endless(template::row_value(row)))
}

#[derive(Debug)]
struct Endless(Value);

impl minijinja::value::Object for Endless {
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
