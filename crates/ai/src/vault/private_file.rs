//! Files with secrets: readable by their owner only.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use longshore_trusted_path::{PathError, Symlinks, create_private, open_private, open_regular};
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

/// Reads a file. For a symlink, the target's owner and mode count.
pub(super) fn read(path: &Path, others: OtherReaders) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let opened = match others {
        OtherReaders::Refused => open_private(path, Symlinks::Follow),
        OtherReaders::Trusted => open_regular(path, Symlinks::Follow),
    };
    let file = opened.map_err(|error| match error {
        PathError::Io { error, .. } => VaultError::file(path, "cannot be read", error),
        error => VaultError::Untrusted(error),
    })?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_SECRET_BYTES + 1));
    let mut file = file.take(MAX_SECRET_BYTES as u64 + 1);
    file.read_to_end(&mut bytes).map_err(|e| VaultError::file(path, "cannot be read", e))?;
    if bytes.len() > MAX_SECRET_BYTES {
        let problem = "is too long to be a secret";
        return Err(VaultError::File { path: path.to_owned(), problem, source: None });
    }
    Ok(bytes)
}

/// Writes a new file that only its owner may read, and syncs it to disk. Never overwrites one: it
/// could be the only master key.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), VaultError> {
    let mut file = create_private(path).map_err(|e| VaultError::file(path, "cannot be made", e))?;
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
