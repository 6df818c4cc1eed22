//! Errors of the spool.

use std::io;
use std::path::{Path, PathBuf};

use longshore_trusted_path::PathError;
use rustix::io::Errno;

use super::filename::MessageKeyError;

/// Why a spool operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// A file operation failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Other users can read or replace the messages.
    #[error("the spool is not safe from other users")]
    Untrusted(#[source] PathError),
    /// A file of the spool cannot be parsed.
    #[error("{} is no message: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another sender holds the lock of a bucket.
    #[error("another sender has bucket {bucket} of {}", folder.display())]
    Locked {
        /// The spool's folder.
        folder: PathBuf,
        /// The first bucket that is locked.
        bucket: u8,
    },
    /// The task that wrote the message panicked: it may be stored, and may be enqueued again.
    #[error("the spool writer crashed; the message may be stored: enqueue it again")]
    WriterCrashed,
    /// The key is invalid.
    #[error(transparent)]
    Key(#[from] MessageKeyError),
}

impl SpoolError {
    /// Whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Locked { .. } | Self::WriterCrashed => true,
            Self::Untrusted(_) | Self::Damaged { .. } | Self::Key(_) => false,
        }
    }
}

impl SpoolError {
    /// Whether the error concerns only this file: then the others are processed without it.
    pub(super) fn is_file_specific(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => Errno::from_io_error(source).is_some_and(is_file_specific),
            Self::Untrusted(_) | Self::Locked { .. } | Self::WriterCrashed | Self::Key(_) => false,
        }
    }

    /// The error and its cause, on one line.
    pub(super) fn with_source(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}

/// Permission denied, bad disk sectors, or not a regular file. Not: disk full, too many open files.
fn is_file_specific(errno: Errno) -> bool {
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

/// Adds the operation and the path to an I/O error.
pub(super) trait IoContext<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, SpoolError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, SpoolError> {
        self.map_err(|source| SpoolError::Io { operation, path: path.to_path_buf(), source })
    }
}
