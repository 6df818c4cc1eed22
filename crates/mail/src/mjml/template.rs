//! A template as renderers get it: one text with its includes resolved, and the source location of each line.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{MjmlError, MjmlLocation};
use super::include::{expand, find_include, normalise_line_ends};

/// MJML with its includes resolved.
#[derive(Debug, Clone)]
pub struct MjmlTemplate {
    text: Arc<str>,
    /// The source location of each line; empty if the template was passed as text and includes nothing.
    locations: Arc<[MjmlLocation]>,
}

/// Folders that includes may be read from. If empty, every include is rejected.
#[derive(Debug, Clone, Default)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// Allows these folders and everything below them.
    pub fn new<P: AsRef<Path>>(folders: impl IntoIterator<Item = P>) -> io::Result<Self> {
        folders.into_iter().map(|folder| folder.as_ref().canonicalize()).collect::<Result<_, _>>().map(Self)
    }

    /// The canonical path of an include; an error if it is outside of all roots. Symbolic links are resolved
    /// first.
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf, String> {
        let shown = path.display();
        let real = path.canonicalize().map_err(|cause| format!("cannot include {shown}: {cause}"))?;
        if !self.0.iter().any(|root| real.starts_with(root)) {
            return Err(format!("cannot include {shown}: it is outside of the allowed folders"));
        }
        match real.is_file() {
            true => Ok(real),
            false => Err(format!("cannot include {shown}: it is not a file")),
        }
    }
}

impl MjmlTemplate {
    /// Parses a text; its includes are relative to the first root.
    pub fn from_text(text: &str, roots: &Roots) -> Result<Self, MjmlError> {
        // Fast path for digest pages, which have no includes: the renderer validates them later.
        let text = normalise_line_ends(text);
        if find_include(&text).is_none() {
            return Ok(Self::new(text, Vec::new()));
        }
        expand(None, roots.0.first().map(PathBuf::as_path), &text, roots)
    }

    /// Reads a file; its includes are relative to the file.
    pub fn read(path: &Path, roots: &Roots) -> Result<Self, MjmlError> {
        let file: Arc<Path> = path.into();
        let unreadable = |cause: io::Error| MjmlError {
            location: MjmlLocation { file: Some(Arc::clone(&file)), line: 1 },
            message: format!("cannot be read: {cause}"),
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        expand(Some(Arc::clone(&file)), path.parent(), &text, roots)
    }

    pub(super) fn new(text: String, locations: Vec<MjmlLocation>) -> Self {
        Self { text: text.into(), locations: locations.into() }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The source location of a line of the text; lines count from 1.
    pub fn location(&self, line: usize) -> MjmlLocation {
        let unknown = || MjmlLocation { file: None, line };
        let at = line.clamp(1, self.locations.len().max(1)) - 1;
        self.locations.get(at).cloned().unwrap_or_else(unknown)
    }

    /// Rejects a template that still contains what another renderer might treat as an include, and read a
    /// file of its own machine for.
    pub(super) fn reject_includes(&self) -> Result<(), MjmlError> {
        let Some(at) = find_include(&self.text) else { return Ok(()) };
        let line = self.text[..at].matches('\n').count() + 1;
        Err(self.error(line, "an mj-include in a comment, a style or a declaration: remove it"))
    }

    /// An error at a line of the text.
    pub(super) fn error(&self, line: usize, message: impl Into<String>) -> MjmlError {
        MjmlError { location: self.location(line), message: message.into() }
    }
}
