//! Errors of batch files, with their location.

use std::fmt;

use longshore::did_you_mean;

/// One mistake: its location, a message and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1, if the mistake has one.
    pub line: Option<usize>,
    /// The message.
    pub message: String,
    /// The hint.
    pub hint: Option<String>,
    /// The file may be right: the rows' database is unavailable, and a retry may help.
    pub is_retryable: bool,
}

impl FileError {
    /// An error without a line.
    pub fn new(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, message: message.into(), hint: None, is_retryable: false }
    }

    /// Sets the line.
    #[must_use]
    pub fn at(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }

    /// Sets whether a retry may help.
    #[must_use]
    pub fn retryable(self, is_retryable: bool) -> Self {
        Self { is_retryable, ..self }
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Sets a hint: the name in `known` that is most similar to `given`, else the list of them.
    #[must_use]
    pub fn suggest<'a>(self, given: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        match did_you_mean(given, known.iter().copied()) {
            Some(word) => self.hint(format!("did you mean `{word}`?")),
            None if known.is_empty() => self,
            None => self.hint(format!("expected one of: {}", known.join(", "))),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for FileError {}

/// The key of a TOML value with a wrong type or an invalid text.
pub fn toml_key(error: &toml::de::Error) -> Option<String> {
    // Without its input, the error shows the key instead of the line.
    let mut error = error.clone();
    error.set_input(None);
    let shown = error.to_string();
    let key = shown.lines().last()?.strip_prefix("in `")?.strip_suffix('`')?;
    Some(key.to_owned())
}
