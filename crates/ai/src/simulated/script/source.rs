//! Locates errors in a script's text.

use longshore::suggestion;
use toml::Spanned;

use super::ScriptError;
use super::templates::TemplateError;

/// The script's text.
#[derive(Clone, Copy)]
pub(super) struct Source<'a>(pub(super) &'a str);

impl Source<'_> {
    /// The line, from 1, of a byte position.
    pub(super) fn line(self, at: usize) -> usize {
        let before = &self.0.as_bytes()[..at.min(self.0.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    pub(super) fn error(self, at: usize, message: impl Into<String>) -> ScriptError {
        ScriptError { line: self.line(at), message: message.into() }
    }

    /// An error inside a string, which may have several lines.
    pub(super) fn error_inside(self, text: &Spanned<String>, error: &TemplateError) -> ScriptError {
        let at = text.span().start;
        let opening = self.0.get(at..).unwrap_or("").trim_start_matches(['"', '\'']);
        // TOML drops a line break right after the opening quotes.
        let skipped = usize::from(opening.starts_with(['\n', '\r']));
        ScriptError { line: self.line(at) + skipped + error.line, message: error.message.clone() }
    }

    /// The TOML parser's error, with a suggestion if a key is unknown.
    pub(super) fn toml_error(self, error: &toml::de::Error) -> ScriptError {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().trim();
        let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        match quoted.as_slice() {
            [given, known @ ..] if message.starts_with("unknown field") => {
                let hint = suggestion(given, known.iter().copied());
                self.error(at, format!("unknown key `{given}`{hint}"))
            }
            _ => self.error(at, message),
        }
    }
}
