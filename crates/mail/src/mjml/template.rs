//! A template as every renderer gets it: one text, its includes in place, each line with where it is from.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Fault, Place};
use super::include::{any_include, expand, tidy};

/// MJML with its includes in place.
#[derive(Debug, Clone)]
pub struct Template {
    text: Arc<str>,
    /// Where each line is from; nothing if it was never a file.
    places: Arc<[Place]>,
}

/// Folders that includes may come from. None of them, none of the includes.
#[derive(Debug, Clone, Default)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// These folders and all below them.
    pub fn new<P: AsRef<Path>>(folders: impl IntoIterator<Item = P>) -> io::Result<Self> {
        folders
            .into_iter()
            .map(|folder| folder.as_ref().canonicalize())
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The file that is meant, if it is below one of them. Links are followed first.
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf, String> {
        let shown = path.display();
        let real =
            path.canonicalize().map_err(|cause| format!("cannot include {shown}: {cause}"))?;
        if !self.0.iter().any(|root| real.starts_with(root)) {
            return Err(format!("cannot include {shown}: it is outside of the allowed folders"));
        }
        match real.is_file() {
            true => Ok(real),
            false => Err(format!("cannot include {shown}: it is not a file")),
        }
    }
}

impl Template {
    /// A text that was never a file; what it includes is relative to the first of the roots.
    pub fn from_text(text: &str, roots: &Roots) -> Result<Self, Fault> {
        // A page of a digest, as a rule: made for one reader, and looked at by whoever renders it.
        let text = tidy(text);
        if any_include(&text).is_none() {
            return Ok(Self::new(text, Vec::new()));
        }
        expand(None, roots.0.first().map(PathBuf::as_path), &text, roots)
    }

    /// A file; what it includes is relative to it.
    pub fn read(path: &Path, roots: &Roots) -> Result<Self, Fault> {
        let file: Arc<Path> = path.into();
        let unreadable = |cause: io::Error| Fault {
            place: Place { file: Some(Arc::clone(&file)), line: 1 },
            what: format!("cannot be read: {cause}"),
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        expand(Some(Arc::clone(&file)), path.parent(), &text, roots)
    }

    pub(super) fn new(text: String, places: Vec<Place>) -> Self {
        Self { text: text.into(), places: places.into() }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where a line of the text is from; lines count from 1.
    pub fn place(&self, line: usize) -> Place {
        let last = || Place { file: None, line };
        let at = line.clamp(1, self.places.len().max(1)) - 1;
        self.places.get(at).cloned().unwrap_or_else(last)
    }

    /// A fault if anything is left that another renderer than ours might take for an include, and read a
    /// file of its own machine for.
    pub(super) fn includes_nothing(&self) -> Result<(), Fault> {
        let Some(at) = any_include(&self.text) else { return Ok(()) };
        let line = self.text[..at].matches('\n').count() + 1;
        Err(self.fault(line, "an mj-include in a comment, a style or a declaration: take it out"))
    }

    /// A fault at a line of the text.
    pub(super) fn fault(&self, line: usize, what: impl Into<String>) -> Fault {
        Fault { place: self.place(line), what: what.into() }
    }
}
