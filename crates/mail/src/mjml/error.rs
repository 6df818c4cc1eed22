//! Errors of templates and of rendering.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::AcquireError;

/// A line of a template or of an included file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MjmlLocation {
    /// The file; none if the template was passed as text.
    pub file: Option<Arc<Path>>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for MjmlLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{}", file.display(), self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// An error in a template, with its location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {message}")]
pub struct MjmlError {
    /// Where the error is.
    pub location: MjmlLocation,
    /// What is wrong.
    pub message: String,
}

/// Why rendering failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// The template is invalid; a retry fails again.
    #[error(transparent)]
    Template(#[from] MjmlError),
    /// The renderer rejected the template without a location.
    #[error("{renderer} refused the template: {message}")]
    Refused {
        /// The renderer's name.
        renderer: String,
        /// Its error message.
        message: String,
    },
    /// The renderer could not be reached, or crashed.
    #[error("{renderer} is unavailable: {message}")]
    Unavailable {
        /// The renderer's name.
        renderer: String,
        /// The cause.
        message: String,
    },
    /// Rendering exceeded the timeout.
    #[error("{renderer} took longer than {limit:?}")]
    Timeout {
        /// The renderer's name.
        renderer: String,
        /// The timeout.
        limit: Duration,
    },
    /// The bounded pool gave no permit.
    #[error(transparent)]
    Permit(#[from] AcquireError),
}

impl RenderError {
    /// Whether a retry with the same template may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Template(_) | Self::Refused { .. } => false,
            Self::Unavailable { .. } | Self::Timeout { .. } | Self::Permit(_) => true,
        }
    }
}

/// An error and its chain of causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
