//! Whom a server runs as. PostgreSQL refuses root, and nothing else needs it.

use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Debian's `nobody`.
const NOBODY: u32 = 65_534;

/// Whether we may do everything.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder that belongs to the server's account.
pub(super) fn folder(prefix: &str) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir()?;
    give(folder.path())?;
    Ok(folder)
}

/// Gives a file or folder to the server's account.
pub(super) fn give(path: &Path) -> io::Result<()> {
    if is_root() { chown(path, Some(NOBODY), Some(NOBODY)) } else { Ok(()) }
}

/// A command of the server's account, in its folder, in English.
pub(super) fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("HOME", folder).env("LC_ALL", "C.UTF-8");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
