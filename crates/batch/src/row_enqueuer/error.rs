//! Why rows could not be sent into a batch.

use longshore::SendError;

use crate::rows::SourceError;

/// Why rows could not be sent into a batch. Rows sent before stay; [`super::RowEnqueuer::resume`]
/// continues after them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// The rows' database failed.
    #[error("the candidates cannot be read")]
    Source(#[from] SourceError),
    /// The store rejected the rows.
    #[error("the rows cannot be put into the batch")]
    Send(#[from] SendError),
    /// The store failed to read the batch.
    #[error("the batch cannot be read")]
    Store(#[from] longshore::Error),
    /// A row or the batch's record is invalid.
    #[error("{0}")]
    Data(String),
}

impl FillError {
    /// Whether a retry may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Source(error) => error.is_retryable(),
            Self::Send(SendError::Store(error)) | Self::Store(error) => error.is_retryable(),
            // The queue may drain.
            Self::Send(_) => true,
            Self::Data(_) => false,
        }
    }
}
