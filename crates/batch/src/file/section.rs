//! A table of the batch file, with typed access to its values.
//!
//! Reads the parsed TOML by hand and not through serde: every value's location is needed, and serde
//! loses it for a key that accepts several types.

use std::time::Duration;

use longshore::duration;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::BatchFile;
use super::error::{FileError, toml_key};
use super::source_map::SourceLocation;

/// A table and its name.
#[derive(Debug, Clone)]
pub(super) struct Section<'a> {
    pub(super) file: &'a BatchFile,
    name: String,
    table: &'a DeTable<'a>,
    /// The offset of its header; `None` for the whole file.
    at: Option<usize>,
}

/// A key's value.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    pub(super) file: &'a BatchFile,
    /// The key with its sections, such as `candidates.limit`.
    pub(super) name: String,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    /// The whole file. Rejects keys that are not in `known`.
    pub(super) fn root(
        file: &'a BatchFile,
        table: &'a DeTable<'a>,
        known: &[&str],
    ) -> Result<Self, FileError> {
        Self { file, name: String::new(), table, at: None }.reject_unknown_keys(known)
    }

    /// Its name, such as `candidates` or `step[0]`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The value of a key.
    pub(super) fn field(&self, key: &str) -> Option<Field<'a>> {
        let value = self.table.get(key)?;
        Some(Field { file: self.file, name: self.key(key), value })
    }

    /// All keys and values in the order in which they were written.
    pub(super) fn fields(&self) -> Vec<(&'a str, Field<'a>)> {
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let named = |key: &str| self.key(key);
        let field = |(key, value): (&'a Spanned<_>, &'a _)| {
            let key: &'a std::borrow::Cow<'_, str> = key.get_ref();
            (key.as_ref(), Field { file: self.file, name: named(key), value })
        };
        entries.into_iter().map(field).collect()
    }

    /// The value of a required key.
    pub(super) fn require(&self, key: &str) -> Result<Field<'a>, FileError> {
        self.field(key).ok_or_else(|| self.missing(key))
    }

    /// A table under this one. Rejects keys that are not in `known`.
    pub(super) fn section(&self, key: &str, known: &[&str]) -> Result<Option<Self>, FileError> {
        self.field(key).map(|field| field.section(known)).transpose()
    }

    /// A required table.
    pub(super) fn require_section(&self, key: &str, known: &[&str]) -> Result<Self, FileError> {
        let missing = || self.error(format!("section [{}] is missing", self.key(key)));
        self.section(key, known)?.ok_or_else(missing)
    }

    /// The value of a key, or the default, as its type deserializes it.
    pub(super) fn deserialize<T: DeserializeOwned + Default>(&self, key: &str) -> Result<T, FileError> {
        self.field(key).map_or_else(|| Ok(T::default()), |field| field.deserialize())
    }

    /// Of mutually exclusive keys, the one that is present.
    pub(super) fn exclusive(&self, keys: &[&str]) -> Result<Option<(usize, Field<'a>)>, FileError> {
        let given = keys.iter().enumerate();
        let mut given = given.filter_map(|(i, key)| Some((i, self.field(key)?)));
        let Some(first) = given.next() else { return Ok(None) };
        match given.next() {
            None => Ok(Some(first)),
            Some((_, second)) => {
                let message = format!("`{}` and `{}` exclude each other", first.1.name, second.name);
                Err(second.error(message).hint("leave one of them out"))
            }
        }
    }

    /// An error about the whole section.
    pub(super) fn error(&self, message: impl Into<String>) -> FileError {
        let error = FileError::new(&self.file.display_path, message);
        match self.at {
            Some(at) => error.at(self.file.line(at)),
            None => error,
        }
    }

    /// The error for a missing key.
    pub(super) fn missing(&self, key: &str) -> FileError {
        self.error(format!("`{}` is missing", self.key(key)))
    }

    fn key(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn reject_unknown_keys(self, known: &[&str]) -> Result<Self, FileError> {
        let mut keys: Vec<_> = self.table.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        match keys.iter().find(|key| !known.contains(&key.get_ref().as_ref())) {
            None => Ok(self),
            Some(key) => {
                let (word, line) = (key.get_ref(), self.file.line(key.span().start));
                let message = match self.name.as_str() {
                    "" => format!("unknown key `{word}`"),
                    name => format!("unknown key `{word}` in [{name}]"),
                };
                let error = FileError::new(&self.file.display_path, message).at(line);
                Err(error.suggest(word, known.iter().copied()))
            }
        }
    }
}

impl<'a> Field<'a> {
    /// An error at this value.
    pub(super) fn error(&self, message: impl Into<String>) -> FileError {
        self.location().error(message)
    }

    /// The location of the value.
    pub(super) fn location(&self) -> SourceLocation {
        SourceLocation { file: self.file.display_path.clone(), line: self.file.line(self.value.span().start) }
    }

    /// The location of a string's text: after `"""` and a line break, the next line.
    pub(super) fn text_location(&self) -> SourceLocation {
        let written = self.file.text.get(self.value.span()).unwrap_or_default();
        let opened = ["\"\"\"", "'''"].iter().find_map(|quote| written.strip_prefix(quote));
        let next = opened.is_some_and(|text| text.starts_with('\n') || text.starts_with("\r\n"));
        self.location().lines_below(usize::from(next))
    }

    /// The raw value.
    pub(super) fn value(&self) -> &'a DeValue<'a> {
        self.value.get_ref()
    }

    /// A string that is not blank.
    pub(super) fn text(&self) -> Result<&'a str, FileError> {
        let text = self.value().as_str().ok_or_else(|| self.type_error("text in quotes"))?;
        if text.trim().is_empty() {
            return Err(self.error(format!("`{}` is empty", self.name)));
        }
        Ok(text)
    }

    /// An integer, 0 or more.
    pub(super) fn whole(&self) -> Result<u64, FileError> {
        let number = self.value().as_integer().ok_or_else(|| self.type_error("a whole number"))?;
        let whole = u64::from_str_radix(number.as_str(), number.radix());
        whole.map_err(|_| self.error(format!("`{}` cannot be {number}", self.name)))
    }

    /// An integer, 1 or more.
    pub(super) fn count(&self) -> Result<u64, FileError> {
        match self.whole()? {
            0 => Err(self.error(format!("`{}` must be 1 or more", self.name))),
            number => Ok(number),
        }
    }

    /// Like [`Field::count`], in 32 bits.
    pub(super) fn small_count(&self) -> Result<u32, FileError> {
        let number = self.count()?;
        u32::try_from(number).map_err(|_| self.error(format!("`{}` is too large", self.name)))
    }

    /// A number that is not negative.
    pub(super) fn number(&self) -> Result<f64, FileError> {
        let number = match self.value() {
            DeValue::Integer(number) => number.to_string().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => return Err(self.type_error("a number")),
        };
        let usable = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
        usable.ok_or_else(|| self.error(format!("`{}` must be 0 or more", self.name)))
    }

    /// A duration above zero.
    pub(super) fn positive_duration(&self) -> Result<Duration, FileError> {
        let time = self.duration_or_zero()?;
        if time.is_zero() {
            return Err(self.error(format!("`{}` {}", self.name, duration::NOT_POSITIVE)));
        }
        Ok(time)
    }

    /// A duration, possibly zero.
    pub(super) fn duration_or_zero(&self) -> Result<Duration, FileError> {
        let text = self.value().as_str();
        let text = text.ok_or_else(|| self.type_error("a length of time in quotes, as \"60s\""))?;
        duration::parse(text).map_err(|error| self.error(format!("`{}`: {error}", self.name)))
    }

    /// One of the given words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, FileError> {
        let text = self.text()?;
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let message = format!("`{text}` is not a value of `{}`", self.name);
            self.error(message).suggest(text, choices.iter().map(|(word, _)| *word))
        })
    }

    /// The value as its type deserializes it. An error names the key below this one and its line.
    fn deserialize<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        T::deserialize(ValueDeserializer::from(self.value.clone())).map_err(|error| {
            let at = error.span().unwrap_or_else(|| self.value.span()).start;
            let error_at_line =
                |message| FileError::new(&self.file.display_path, message).at(self.file.line(at));
            let name = match toml_key(&error) {
                Some(key) => format!("{}.{key}", self.name),
                None => self.name.clone(),
            };
            let message = error.message();
            let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
            match words.as_slice() {
                [given, known @ ..] if message.starts_with("unknown field") => {
                    error_at_line(format!("unknown key `{given}` in [{name}]"))
                        .suggest(given, known.iter().copied())
                }
                _ => error_at_line(format!("`{name}`: {message}")),
            }
        })
    }

    /// The items of a list, each named by its index.
    pub(super) fn items(&self) -> Option<Vec<Self>> {
        let items = self.value().as_array()?;
        let item = |(i, value)| Self { file: self.file, name: format!("{}[{i}]", self.name), value };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// A table. Rejects keys that are not in `known`.
    pub(super) fn section(&self, known: &[&str]) -> Result<Section<'a>, FileError> {
        self.section_with_any_keys()?.reject_unknown_keys(known)
    }

    /// A table with keys of the user's choice.
    pub(super) fn section_with_any_keys(&self) -> Result<Section<'a>, FileError> {
        let table = self.value().as_table().ok_or_else(|| self.type_error("a section"))?;
        let at = Some(self.value.span().start);
        Ok(Section { file: self.file, name: self.name.clone(), table, at })
    }

    /// The error for a value of the wrong type.
    pub(super) fn type_error(&self, wanted: &str) -> FileError {
        let given = match self.value() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a section",
        };
        self.error(format!("`{}` must be {wanted}, not {given}", self.name))
    }
}
