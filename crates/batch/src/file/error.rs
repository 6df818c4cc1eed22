//! What is wrong with a batch file, in one sentence with its place.

use std::fmt;

/// One mistake: where it is, what it is, what may help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The file, as people would name it.
    pub file: String,
    /// The line, from 1, if the mistake is somewhere in particular.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What may help.
    pub hint: Option<String>,
}

impl FileError {
    /// A mistake without a line.
    pub fn new(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, message: message.into(), hint: None }
    }

    /// At a line.
    #[must_use]
    pub fn at(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }

    /// With something that may help.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// With the known word that is most like `given`, or else the list of them.
    #[must_use]
    pub fn meant<'a>(self, given: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        match did_you_mean(given, known.iter().copied()) {
            Some(word) => self.hint(format!("did you mean `{word}`?")),
            None if known.is_empty() => self,
            None => self.hint(format!("there are: {}", known.join(", "))),
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

/// The candidate most like `given`, if any is like enough to be meant.
pub fn did_you_mean<'a>(
    given: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let given = given.to_lowercase();
    let likeness = |word: &str| strsim::jaro_winkler(&given, &word.to_lowercase());
    let scored = candidates.into_iter().map(|word| (likeness(word), word));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.75).map(|(_, word)| word)
}
