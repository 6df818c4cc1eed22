//! What can be wrong with a template, and with rendering it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::AcquireError;

/// A line of a template or of something that it includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file; none if the template was never one.
    pub file: Option<Arc<Path>>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{}", file.display(), self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// What is wrong with a template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Fault {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub what: String,
}

/// Why there is no HTML.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// The template is wrong, and will be the next time.
    #[error(transparent)]
    Template(#[from] Fault),
    /// The renderer refused the template without saying where.
    #[error("{renderer} refused the template: {message}")]
    Refused {
        /// Which renderer.
        renderer: String,
        /// What it said.
        message: String,
    },
    /// The renderer could not be reached, or died.
    #[error("{renderer} cannot be had: {message}")]
    Unavailable {
        /// Which renderer.
        renderer: String,
        /// Why.
        message: String,
    },
    /// It took too long.
    #[error("{renderer} took longer than {limit:?}")]
    Late {
        /// Which renderer.
        renderer: String,
        /// How long it may take.
        limit: Duration,
    },
    /// There was no permit of the bounded pool.
    #[error(transparent)]
    Permit(#[from] AcquireError),
}

impl RenderError {
    /// Whether the same template may do better later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Template(_) | Self::Refused { .. } => false,
            Self::Unavailable { .. } | Self::Late { .. } | Self::Permit(_) => true,
        }
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    std::iter::once(error.to_string())
        .chain(causes.map(ToString::to_string))
        .collect::<Vec<_>>()
        .join(": ")
}
