//! The locations of a definition's texts, so that a later error can point at its line.

use std::collections::BTreeMap;

use super::error::FileError;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file, as the user named it.
    pub file: String,
    /// The first line of the text, from 1.
    pub line: usize,
}

impl SourceLocation {
    /// The location `lines` lines below.
    pub(crate) fn lines_below(&self, lines: usize) -> Self {
        Self { file: self.file.clone(), line: self.line + lines }
    }

    /// An error at this location.
    pub fn error(&self, message: impl Into<String>) -> FileError {
        FileError::new(&self.file, message).at(self.line)
    }
}

/// The locations of a definition's texts by their keys: `candidates.sql`, `candidates.key`,
/// `pre.sql`, `pre.lists.NAME`, `pre.prompt`, `ai.schema`, `ai.script`, `post.success[0]`,
/// `post.rules[0].when`, `completion.sql[0]`, `database` and so on.
///
/// Empty for a definition built in Rust: its errors have no lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceMap(BTreeMap<String, SourceLocation>);

impl SourceMap {
    /// The location of the text under `key`.
    pub fn find(&self, key: &str) -> Option<&SourceLocation> {
        self.0.get(key)
    }

    /// Records the location of a text.
    pub(crate) fn put(&mut self, key: impl Into<String>, location: SourceLocation) {
        self.0.insert(key.into(), location);
    }

    /// An error `lines` lines into the text under `key`; without a location, an error in `source`.
    pub(crate) fn error(
        &self,
        source: &str,
        key: &str,
        lines: usize,
        message: impl Into<String>,
    ) -> FileError {
        match self.find(key) {
            Some(location) => location.lines_below(lines).error(message),
            None => FileError::new(source, message),
        }
    }
}
