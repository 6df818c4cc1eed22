//! Where things stand in a script's text, and how a mistake there is told.

use toml::Spanned;

use super::ScriptError;
use super::templates::Fault;

/// The script's text, for telling lines.
#[derive(Clone, Copy)]
pub(super) struct Source<'a>(pub(super) &'a str);

impl Source<'_> {
    /// The line, from 1, in which a byte stands.
    pub(super) fn line(self, at: usize) -> usize {
        let before = &self.0.as_bytes()[..at.min(self.0.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    pub(super) fn fault(self, at: usize, message: impl Into<String>) -> ScriptError {
        ScriptError { line: self.line(at), message: message.into() }
    }

    /// A fault inside a text, which may have several lines.
    pub(super) fn inside(self, text: &Spanned<String>, fault: &Fault) -> ScriptError {
        let at = text.span().start;
        let opening = self.0.get(at..).unwrap_or("").trim_start_matches(['"', '\'']);
        // TOML leaves out a line break right after the opening quotes.
        let skipped = usize::from(opening.starts_with(['\n', '\r']));
        ScriptError { line: self.line(at) + skipped + fault.line, message: fault.message.clone() }
    }

    /// The TOML reader's complaint, with a guess at what was meant if a key is unknown.
    pub(super) fn refusal(self, error: &toml::de::Error) -> ScriptError {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().trim();
        let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        match words.as_slice() {
            [given, known @ ..] if message.starts_with("unknown field") => {
                let meant = meant(given, known.iter().copied());
                self.fault(at, format!("unknown key `{given}`{meant}"))
            }
            _ => self.fault(at, message),
        }
    }
}

/// What to say of an unknown word: the known one it is most like, if any is like enough.
pub(super) fn meant<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let scored = known.into_iter().map(|word| (strsim::jaro_winkler(given, word), word));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.75);
    best.map_or(String::new(), |(_, word)| format!(", did you mean `{word}`?"))
}
