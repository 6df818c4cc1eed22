//! Why a path cannot be trusted, and the command that mends it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a path cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Group or others have permissions.
    #[error("{} is accessible to other users: its mode is {mode:04o}", path.display())]
    Accessible {
        /// The file or folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Whether it is a folder.
        is_dir: bool,
    },
    /// Other users can write the file, or replace the entries of the folder.
    #[error("{} can be changed by other users: its mode is {mode:04o}", path.display())]
    Writable {
        /// The file or folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It belongs neither to the effective user nor to root.
    #[error("{} belongs to another user (uid {owner})", path.display())]
    WrongOwner {
        /// The file or folder.
        path: PathBuf,
        /// The user's number.
        owner: u32,
    },
    /// It is a symbolic link.
    #[error("{} is a symbolic link", .0.display())]
    Symlink(PathBuf),
    /// It is a file of another type.
    #[error("{} is not a {expected}", path.display())]
    WrongType {
        /// The file or folder.
        path: PathBuf,
        /// The type that is needed.
        expected: &'static str,
    },
    /// The operating system's error.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

impl PathError {
    /// Adds the path to an I/O error.
    pub fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io { path: path.to_path_buf(), error }
    }

    /// The kind of the operating system's error, if it is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { error, .. } => Some(error.kind()),
            _ => None,
        }
    }

    /// How to mend it. `None` for an error of the operating system.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Accessible { path, is_dir: true, .. } => format!("chmod 700 {}", path.display()),
            Self::Accessible { path, .. } => format!("chmod 600 {}", path.display()),
            Self::Writable { path, .. } => format!("chmod go-w {}", path.display()),
            Self::WrongOwner { path, owner } => format!(
                "name another path, or run as that user; if uid {owner} is not trusted, remove {} unread",
                path.display()
            ),
            Self::Symlink(path) => format!("name the target itself, or rm {}", path.display()),
            Self::WrongType { path, .. } => format!("move {} away", path.display()),
            Self::Io { .. } => return None,
        })
    }
}
