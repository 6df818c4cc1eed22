//! Files that hold secrets: read only if nobody else may.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use super::error::VaultError;

/// No secret is longer. What is longer is the wrong file.
pub(super) const LONGEST: usize = 16 * 1024;

/// Who else may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Nobody but its owner.
    Refused,
    /// Whoever the directory lets in. systemd grants a service its credentials by an access list,
    /// which shows in the mode as if a group could read.
    Trusted,
}

/// Reads a file. Of a symlink, the target's mode counts.
pub(super) fn read(path: &Path, others: Others) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    // Before it is opened: to open a pipe would wait for a writer.
    let found = fs::metadata(path).map_err(|e| VaultError::file(path, "cannot be read", e))?;
    if !found.is_file() {
        let problem = "is not a regular file";
        return Err(VaultError::File { path: path.to_owned(), problem, source: None });
    }
    let file = File::open(path).map_err(|e| VaultError::file(path, "cannot be read", e))?;
    if others == Others::Refused {
        check_mode(path, &file)?;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 1));
    let mut file = file.take(LONGEST as u64 + 1);
    file.read_to_end(&mut bytes).map_err(|e| VaultError::file(path, "cannot be read", e))?;
    if bytes.len() > LONGEST {
        let problem = "is too long to be a secret";
        return Err(VaultError::File { path: path.to_owned(), problem, source: None });
    }
    Ok(bytes)
}

/// The mode of the file that is open, so that it cannot be exchanged in between.
fn check_mode(path: &Path, file: &File) -> Result<(), VaultError> {
    let found = file.metadata().map_err(|e| VaultError::file(path, "cannot be read", e))?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(VaultError::TooOpen { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Writes a new file that only its owner may read, and waits until the disk has it. Never
/// overwrites one: that could be the only key to everything.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), VaultError> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| VaultError::file(path, "cannot be made", e))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| sync_directory(path))
        .map_err(|e| VaultError::file(path, "cannot be written", e))
}

/// A new name is safe only once its directory is.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
