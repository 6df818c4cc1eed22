//! Where each text of a definition was written, so that what is found wrong with it later can be
//! pointed at.

use std::collections::BTreeMap;

use super::error::FileError;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as people would name it.
    pub file: String,
    /// The line its text begins at, from 1.
    pub line: usize,
}

impl Place {
    /// The place so many lines further down.
    pub(crate) fn down(&self, lines: usize) -> Self {
        Self { file: self.file.clone(), line: self.line + lines }
    }

    /// A mistake there.
    pub fn error(&self, message: impl Into<String>) -> FileError {
        FileError::new(&self.file, message).at(self.line)
    }
}

/// The places of a definition's texts, by their keys: `candidates.sql`, `candidates.key`,
/// `pre.sql`, `pre.lists.NAME`, `pre.prompt`, `ai.schema`, `ai.script`, `post.success[0]`,
/// `post.rules[0].when`, `completion.sql[0]`, `database` and so on.
///
/// Empty for a definition that was made in Rust: its mistakes are then reported without lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places(BTreeMap<String, Place>);

impl Places {
    /// Where the text under `key` was written.
    pub fn find(&self, key: &str) -> Option<&Place> {
        self.0.get(key)
    }

    /// Remembers where a text was written.
    pub(crate) fn put(&mut self, key: impl Into<String>, place: Place) {
        self.0.insert(key.into(), place);
    }

    /// A mistake `lines` lines into the text under `key`; without a place, in `source`.
    pub(crate) fn error(
        &self,
        source: &str,
        key: &str,
        lines: usize,
        message: impl Into<String>,
    ) -> FileError {
        match self.find(key) {
            Some(place) => place.down(lines).error(message),
            None => FileError::new(source, message),
        }
    }
}
