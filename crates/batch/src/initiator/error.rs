//! Why rows did not get into a batch.

use longshore::SendError;

use crate::rows::SourceError;

/// Why rows did not get into a batch. What got in before stays; [`super::Initiator::resume`] goes
/// on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitiateError {
    /// The candidates could not be read.
    #[error("the candidates cannot be read")]
    Source(#[from] SourceError),
    /// The store did not take them.
    #[error("the rows cannot be put into the batch")]
    Send(#[from] SendError),
    /// The store could not say where the batch stands.
    #[error("the batch cannot be read")]
    Store(#[from] longshore::Error),
    /// A row, or the batch's own record, is not as it should be.
    #[error("{0}")]
    Data(String),
}

impl InitiateError {
    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Source(error) => error.is_retryable(),
            Self::Send(SendError::Store(error)) | Self::Store(error) => error.is_retryable(),
            // Room may appear.
            Self::Send(_) => true,
            Self::Data(_) => false,
        }
    }
}
