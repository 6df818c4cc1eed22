//! Files with secrets: readable by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use super::error::VaultError;

/// Longest secret file. A longer one is the wrong file.
pub(super) const MAX_SECRET_BYTES: usize = 16 * 1024;

/// Whether other users may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherReaders {
    /// Only its owner.
    Refused,
    /// As the directory's permissions allow. systemd grants a service its credentials by an ACL,
    /// which shows in the mode as if a group could read.
    Trusted,
}

/// Reads a file. For a symlink, the target's mode counts.
pub(super) fn read(path: &Path, others: OtherReaders) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    // Checked before it is opened: opening a pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(|e| VaultError::file(path, "cannot be read", e))?;
    if !metadata.is_file() {
        let problem = "is not a regular file";
        return Err(VaultError::File { path: path.to_owned(), problem, source: None });
    }
    let file = File::open(path).map_err(|e| VaultError::file(path, "cannot be read", e))?;
    if others == OtherReaders::Refused {
        check_mode(path, &file)?;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_SECRET_BYTES + 1));
    let mut file = file.take(MAX_SECRET_BYTES as u64 + 1);
    file.read_to_end(&mut bytes).map_err(|e| VaultError::file(path, "cannot be read", e))?;
    if bytes.len() > MAX_SECRET_BYTES {
        let problem = "is too long to be a secret";
        return Err(VaultError::File { path: path.to_owned(), problem, source: None });
    }
    Ok(bytes)
}

/// Checks the mode of the open file, so that it cannot be replaced in between.
fn check_mode(path: &Path, file: &File) -> Result<(), VaultError> {
    let metadata = file.metadata().map_err(|e| VaultError::file(path, "cannot be read", e))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(VaultError::TooOpen { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Writes a new file that only its owner may read, and syncs it to disk. Never overwrites one: it
/// could be the only master key.
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

/// A new file is durable only once its directory is synced.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
