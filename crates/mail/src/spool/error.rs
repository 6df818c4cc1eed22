//! What can go wrong with a spool.

use std::io;
use std::path::{Path, PathBuf};

use super::name::KeyError;

/// What can go wrong with a spool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The disk said no.
    #[error("cannot {what} {}", path.display())]
    Disk {
        /// What was tried.
        what: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file of the spool is not what it should be.
    #[error("{} is no message: {why}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else sends these messages.
    #[error("another sender has bucket {bucket} of {}", folder.display())]
    Taken {
        /// Of which spool.
        folder: PathBuf,
        /// The first bucket that another has.
        bucket: u8,
    },
    /// A key that cannot be one.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl SpoolError {
    /// Whether the same may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Disk { .. } | Self::Taken { .. } => true,
            Self::Damaged { .. } | Self::Key(_) => false,
        }
    }
}

/// Says what was tried, of what.
pub(super) trait Tried<T> {
    fn tried(self, what: &'static str, path: &Path) -> Result<T, SpoolError>;
}

impl<T> Tried<T> for io::Result<T> {
    fn tried(self, what: &'static str, path: &Path) -> Result<T, SpoolError> {
        self.map_err(|source| SpoolError::Disk { what, path: path.to_path_buf(), source })
    }
}
