//! What can go wrong with a spool.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

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
    /// Whoever kept it did not come to an end: it may be kept, and may be put again.
    #[error("nobody knows whether the message is kept")]
    Unheard,
    /// A key that cannot be one.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl SpoolError {
    /// Whether the same may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Disk { .. } | Self::Taken { .. } | Self::Unheard => true,
            Self::Damaged { .. } | Self::Key(_) => false,
        }
    }
}

impl SpoolError {
    /// Whether one file is at fault, and not the disk or we: the others need not wait for it.
    pub(super) fn is_of_one_file(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Disk { source, .. } => Errno::from_io_error(source).is_some_and(is_of_one_file),
            Self::Taken { .. } | Self::Unheard | Self::Key(_) => false,
        }
    }

    /// With its causes, on one line.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Disk { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}

/// Somebody else's, or in a bad place of the disk, or no file at all. Not: no room, too many open files.
fn is_of_one_file(errno: Errno) -> bool {
    [
        Errno::ACCESS,
        Errno::PERM,
        Errno::NOENT,
        Errno::ISDIR,
        Errno::NOTDIR,
        Errno::LOOP,
        Errno::NXIO,
        Errno::IO,
        Errno::BADMSG,
        Errno::UCLEAN,
    ]
    .contains(&errno)
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
