//! The OS user that servers run as. PostgreSQL refuses to run as root, and no server needs root.

use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The user id of Debian's `nobody`.
const NOBODY_UID: u32 = 65_534;

/// Whether the test runs as root.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes a temporary folder that belongs to the server's user.
pub(super) fn folder(prefix: &str) -> io::Result<TempDir> {
    folder_in(&std::env::temp_dir(), prefix)
}

/// Makes a temporary folder below `parent` that belongs to the server's user.
pub(super) fn folder_in(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
    chown_to_server(folder.path())?;
    Ok(folder)
}

/// Changes the owner of a file or folder to the server's user.
pub(super) fn chown_to_server(path: &Path) -> io::Result<()> {
    if is_root() { chown(path, Some(NOBODY_UID), Some(NOBODY_UID)) } else { Ok(()) }
}

/// A command that runs as the server's user, in its folder, with English messages.
pub(super) fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("HOME", folder).env("LC_ALL", "C.UTF-8");
    if is_root() {
        command.uid(NOBODY_UID).gid(NOBODY_UID);
    }
    command
}
