//! The file of a SQLite database. It belongs to the user: it is never created, and must stay the file that it was.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::{DatabaseFingerprint, SourceError};

/// A backup may be restored with the log before the file.
const RESTORE_TIME: Duration = Duration::from_secs(1);

/// An existing file.
pub(super) struct SqliteFile {
    pub(super) path: PathBuf,
    /// The file as it was opened. Connections keep to it, although another file may have its path by now.
    pub(super) identity: DatabaseFingerprint,
}

impl SqliteFile {
    /// The file at a path, which is made absolute: it would name another file after the process changes its directory.
    pub(super) fn find(path: &Path) -> Result<Self, SourceError> {
        let found = path.canonicalize().map_err(|error| io_error(path, &error))?;
        if !found.is_file() {
            return Err(SourceError::Data(format!("{} is not a file", path.display())));
        }
        require_own_log(&found)?;
        Ok(Self { identity: identity(&found)?, path: found })
    }

    /// Fails if another file has the path by now, or none: what is written to the open file would be lost with it.
    pub(super) fn require_same(&self) -> Result<(), SourceError> {
        identity(&self.path)?.require(Some(&self.identity))
    }
}

/// Fails if the write-ahead log beside a file was made before the file: SQLite would apply another file's changes to it.
fn require_own_log(path: &Path) -> Result<(), SourceError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let created = |path: &Path| std::fs::metadata(path).ok().filter(|file| file.len() > 0)?.created().ok();
    match (created(path), created(Path::new(&log))) {
        (Some(file), Some(own)) if own + RESTORE_TIME < file => {
            let (path, log) = (path.display(), Path::new(&log).display());
            Err(SourceError::Unavailable(format!(
                "{log} belongs to a file that was there before {path}: stop the programs that use it and move it \
                 away, or copy both anew if they were restored together"
            )))
        }
        _ => Ok(()),
    }
}

/// The file's identity: its inode, and when it was made, if the file system says so. A copy is another file.
fn identity(path: &Path) -> Result<DatabaseFingerprint, SourceError> {
    let file = std::fs::metadata(path).map_err(|error| io_error(path, &error))?;
    let made = file.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let made = made.map(|since| format!("-{}", since.as_micros())).unwrap_or_default();
    let server = Some(format!("{}{made}", file.ino()));
    let path = Some(path.display().to_string());
    Ok(DatabaseFingerprint { server, path, ..DatabaseFingerprint::new("SQLite") })
}

fn io_error(path: &Path, error: &std::io::Error) -> SourceError {
    SourceError::Unavailable(match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no file {}", path.display()),
        _ => format!("{}: {error}", path.display()),
    })
}
