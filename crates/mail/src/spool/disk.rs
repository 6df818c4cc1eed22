//! What the spool asks of a disk: little, and all of it in the right order.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use longshore::Timestamp;

use super::error::{SpoolError, Tried};

/// Makes a folder, and those above it.
pub(super) fn make_folder(path: &Path) -> Result<(), SpoolError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).tried("make", path)
}

/// Writes a new file that only we may read. It is not on disk before somebody syncs it.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<File, SpoolError> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = open().tried("write", path)?;
    let written = file.write_all(bytes).tried("write", path);
    // Half of it is of no use to anybody.
    written.inspect_err(|_| _ = fs::remove_file(path)).map(|()| file)
}

/// Puts a line at the end of a file, in one go.
pub(super) fn append(path: &Path, line: &[u8]) -> Result<File, SpoolError> {
    let open = || OpenOptions::new().append(true).open(path);
    open().and_then(|mut file| file.write_all(line).map(|()| file)).tried("write", path)
}

/// What is in this folder stays, even if the power fails now.
pub(super) fn sync_folder(path: &Path) -> Result<(), SpoolError> {
    File::open(path).and_then(|folder| folder.sync_all()).tried("sync", path)
}

/// Everything written to the disk of this folder stays: one call for a whole group of files, where each
/// alone would wait for the disk.
pub(super) fn sync_disk(path: &Path) -> Result<(), SpoolError> {
    let sync = |folder: File| rustix::fs::syncfs(folder.as_fd()).map_err(io::Error::from);
    File::open(path).and_then(sync).tried("sync", path)
}

/// Whether the file was there to be moved. Who comes second finds it moved already.
pub(super) fn rename(from: &Path, to: &Path) -> Result<bool, SpoolError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => Ok(false),
        result => result.map(|()| true).tried("move", from),
    }
}

/// Whether there was a file to remove.
pub(super) fn remove(path: &Path) -> Result<bool, SpoolError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result.map(|()| true).tried("remove", path),
    }
}

/// The names in a folder; none if it is not there, or no folder.
pub(super) fn names(path: &Path) -> Result<Vec<String>, SpoolError> {
    let mut names = Vec::new();
    walk(path, |name| {
        names.push(name.to_owned());
        Ok(())
    })?;
    Ok(names)
}

/// The same one by one: there may be more than anybody wants to keep in mind.
pub(super) fn walk(
    path: &Path,
    mut with: impl FnMut(&str) -> Result<(), SpoolError>,
) -> Result<(), SpoolError> {
    let entries = match fs::read_dir(path) {
        Err(error) if is_no_folder(&error) => return Ok(()),
        entries => entries.tried("read", path)?,
    };
    for entry in entries {
        if let Some(name) = entry.tried("read", path)?.file_name().to_str() {
            with(name)?;
        }
    }
    Ok(())
}

/// Whether there is nothing, or somebody's file.
pub(super) fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// When a file or a folder was changed.
pub(super) fn changed(path: &Path) -> Option<Timestamp> {
    let since = fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok().map(Timestamp::from_micros)
}

/// Whether two names are names of one file.
pub(super) fn same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    number(one).is_some_and(|one| Some(one) == number(other))
}
