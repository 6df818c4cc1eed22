//! File operations of the spool, with explicit syncs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use longshore::Timestamp;
use longshore_trusted_path::{PathError, create_private, create_private_dir};

use super::error::{IoContext, SpoolError};

/// Creates a folder and its parents, or checks that the existing one is private.
pub(super) fn make_folder(path: &Path) -> Result<(), SpoolError> {
    create_private_dir(path).map_err(|error| match error {
        PathError::Io { path, error } => SpoolError::Io { operation: "make", path, source: error },
        error => SpoolError::Untrusted(error),
    })
}

/// Writes a new file with mode 0600. It is not durable until it is synced.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<File, SpoolError> {
    let mut file = create_private(path).context("write", path)?;
    let written = file.write_all(bytes).context("write", path);
    // A partial file is useless.
    written.inspect_err(|_| _ = fs::remove_file(path)).map(|()| file)
}

/// Appends a line with one write.
pub(super) fn append(path: &Path, line: &[u8]) -> Result<File, SpoolError> {
    let open = || OpenOptions::new().append(true).open(path);
    open().and_then(|mut file| file.write_all(line).map(|()| file)).context("write", path)
}

/// Syncs a folder: its entries survive a power failure.
pub(super) fn sync_folder(path: &Path) -> Result<(), SpoolError> {
    File::open(path).and_then(|folder| folder.sync_all()).context("sync", path)
}

/// Syncs the whole file system of a folder: one call for a group of files, where each sync would wait for the
/// disk.
pub(super) fn sync_disk(path: &Path) -> Result<(), SpoolError> {
    let sync = |folder: File| rustix::fs::syncfs(folder.as_fd()).map_err(io::Error::from);
    File::open(path).and_then(sync).context("sync", path)
}

/// Renames a file. Returns false if it is gone: another process moved it first.
pub(super) fn rename(from: &Path, to: &Path) -> Result<bool, SpoolError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => Ok(false),
        result => result.map(|()| true).context("move", from),
    }
}

/// Removes a file. Returns false if there was none.
pub(super) fn remove(path: &Path) -> Result<bool, SpoolError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result.map(|()| true).context("remove", path),
    }
}

/// The names in a folder; none if it is missing or not a folder.
pub(super) fn names(path: &Path) -> Result<Vec<String>, SpoolError> {
    let mut names = Vec::new();
    walk(path, |name| {
        names.push(name.to_owned());
        Ok(())
    })?;
    Ok(names)
}

/// Calls `with` for each name in a folder, without collecting them: there may be millions.
pub(super) fn walk(
    path: &Path,
    mut with: impl FnMut(&str) -> Result<(), SpoolError>,
) -> Result<(), SpoolError> {
    let entries = match fs::read_dir(path) {
        Err(error) if is_no_folder(&error) => return Ok(()),
        entries => entries.context("read", path)?,
    };
    for entry in entries {
        if let Some(name) = entry.context("read", path)?.file_name().to_str() {
            with(name)?;
        }
    }
    Ok(())
}

/// Whether the error means that the folder is missing or is a file.
pub(super) fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// When a file or folder was last modified.
pub(super) fn changed(path: &Path) -> Option<Timestamp> {
    let since = fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok().map(Timestamp::from_micros)
}

/// Whether two paths are links to one file.
pub(super) fn same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    number(one).is_some_and(|one| Some(one) == number(other))
}
