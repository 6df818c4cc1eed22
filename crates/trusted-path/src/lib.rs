//! Files and folders that no other user of the machine can read or replace.
//!
//! A **private** file or folder belongs to the effective user (or to root), has no permission bits
//! for group and others, and is no symbolic link. The folders above it must not let another user
//! replace it ([`check_parents`]): then a check stays true until the path is used. What this
//! program creates, it creates private, whatever the umask is.

mod error;

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

pub use error::PathError;

/// Whether the last component of a path may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// A link is rejected.
    Reject,
    /// The link's target is checked.
    Follow,
}

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Creates a folder and its missing parents with mode 0700, or checks that the existing one is
/// private.
pub fn create_private_dir(path: &Path) -> Result<(), PathError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(PathError::io(path))?;
    check_private_dir(path)
}

/// Checks that a folder is private, and that no other user can replace it.
pub fn check_private_dir(path: &Path) -> Result<(), PathError> {
    let metadata = fs::symlink_metadata(path).map_err(PathError::io(path))?;
    require_type(path, &metadata, true)?;
    check_private(path, &metadata)?;
    check_parents(path)
}

/// Checks that a folder and everything in it is private.
pub fn check_private_tree(path: &Path) -> Result<(), PathError> {
    check_private_dir(path)?;
    check_entries(path)
}

fn check_entries(folder: &Path) -> Result<(), PathError> {
    for entry in fs::read_dir(folder).map_err(PathError::io(folder))? {
        let path = entry.map_err(PathError::io(folder))?.path();
        let metadata = match fs::symlink_metadata(&path) {
            // The write-ahead log and temporary files of another process come and go.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata.map_err(PathError::io(&path))?,
        };
        require_type(&path, &metadata, metadata.is_dir())?;
        check_private(&path, &metadata)?;
        if metadata.is_dir() {
            check_entries(&path)?;
        }
    }
    Ok(())
}

/// Opens a private regular file for reading. The open file is checked, so that it cannot be
/// replaced in between. Never blocks on a pipe.
pub fn open_private(path: &Path, symlinks: Symlinks) -> Result<File, PathError> {
    let file = open_regular(path, symlinks)?;
    check_private(path, &file.metadata().map_err(PathError::io(path))?)?;
    Ok(file)
}

/// Opens a file with a secret for reading, or a pipe (`<(command)`). The administrator may grant a
/// group to read root's file: a TLS key, a credential of systemd.
pub fn open_secret(path: &Path) -> Result<File, PathError> {
    let file = File::open(path).map_err(PathError::io(path))?;
    check_readers(path, &file.metadata().map_err(PathError::io(path))?)?;
    Ok(file)
}

/// Opens a regular file for reading that other users may read, and must not be able to write.
pub fn open_unwritable(path: &Path) -> Result<File, PathError> {
    let file = open_regular(path, Symlinks::Reject)?;
    check_unwritable(path, &file.metadata().map_err(PathError::io(path))?)?;
    Ok(file)
}

/// Opens a regular file for reading, whatever its owner and mode. Never blocks on a pipe.
pub fn open_regular(path: &Path, symlinks: Symlinks) -> Result<File, PathError> {
    open_with(path, symlinks, File::options().read(true))
}

fn open_with(path: &Path, symlinks: Symlinks, options: &mut OpenOptions) -> Result<File, PathError> {
    let mut flags = OFlags::NONBLOCK;
    if symlinks == Symlinks::Reject {
        flags |= OFlags::NOFOLLOW;
    }
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(|error| {
        let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        match symlinks == Symlinks::Reject && is_link {
            true => PathError::Symlink(path.to_path_buf()),
            false => PathError::io(path)(error),
        }
    })?;
    require_type(path, &file.metadata().map_err(PathError::io(path))?, false)?;
    Ok(file)
}

/// Opens a file that this user's processes share (a PID file), or creates it with mode 0600. Other
/// users may read it, and must not be able to write it.
pub fn open_shared(path: &Path) -> Result<File, PathError> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true).mode(0o600);
    let file = open_with(path, Symlinks::Reject, &mut options)?;
    check_unwritable(path, &file.metadata().map_err(PathError::io(path))?)?;
    Ok(file)
}

/// Creates a file with mode 0600 that must not exist yet.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes a private temporary file beside `path`, syncs it and renames it to `path`.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let mut file = create_private(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let moved = written.and_then(|()| fs::rename(&temporary, path));
    moved.inspect_err(|_| _ = fs::remove_file(&temporary))
}

/// Checks the owner of a file or folder and that group and others have no permission.
pub fn check_private(path: &Path, metadata: &Metadata) -> Result<(), PathError> {
    check_owner(path, metadata)?;
    if metadata.mode() & OTHERS == 0 {
        return Ok(());
    }
    let (path, mode) = (path.to_path_buf(), metadata.mode() & 0o7777);
    Err(PathError::Accessible { path, mode, is_dir: metadata.is_dir() })
}

/// Checks that a file or folder belongs to the effective user or to root.
pub fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), PathError> {
    let owner = metadata.uid();
    if owner == 0 || owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(PathError::WrongOwner { path: path.to_path_buf(), owner })
}

/// Checks that no other user can write a file, or replace the entries of a folder. In a folder with
/// the sticky bit (`/tmp`), entries can be replaced only by their owners.
pub fn check_unwritable(path: &Path, metadata: &Metadata) -> Result<(), PathError> {
    check_owner(path, metadata)?;
    check_writers(path, metadata)
}

/// The part of [`check_unwritable`] that does not depend on the owner.
pub fn check_writers(path: &Path, metadata: &Metadata) -> Result<(), PathError> {
    let sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
    if metadata.is_symlink() || sticky || !others_can_write(metadata) {
        return Ok(());
    }
    Err(writable(path, metadata))
}

fn writable(path: &Path, metadata: &Metadata) -> PathError {
    PathError::Writable { path: path.to_path_buf(), mode: metadata.mode() & 0o7777 }
}

/// Whether a group may write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// No other user may write it or own it.
    Private,
    /// A group may write it, and each of its members may own it.
    Group,
}

/// Checks that no other user placed or can change a SQLite database: the file, its logs, which SQLite
/// applies to it, and its folder, in which a log can be placed. The sticky bit of the folder does not
/// prevent that. The file need not exist.
pub fn check_database(path: &Path, sharing: Sharing) -> Result<(), PathError> {
    let check = |path: &Path| {
        let metadata = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(PathError::io(path))?,
        };
        match sharing {
            Sharing::Private if others_can_write(&metadata) => Err(writable(path, &metadata)),
            Sharing::Private => check_owner(path, &metadata),
            Sharing::Group if metadata.mode() & 0o002 != 0 => Err(writable(path, &metadata)),
            Sharing::Group => Ok(()),
        }
    };
    // SQLite resolves links, and its logs are beside the real file.
    let real = path.canonicalize().or_else(|_| std::path::absolute(path)).map_err(PathError::io(path))?;
    real.parent().map_or(Ok(()), check)?;
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut file = real.clone().into_os_string();
        file.push(suffix);
        check(Path::new(&file))?;
    }
    match sharing {
        Sharing::Private => check_parents(path).and_then(|()| check_parents(&real)),
        Sharing::Group => Ok(()),
    }
}

fn others_can_write(metadata: &Metadata) -> bool {
    metadata.mode() & 0o002 != 0 || (metadata.mode() & 0o020 != 0 && !is_own_group(metadata))
}

/// A group that has the number of the effective user is the user's own group, by the convention of
/// the distributions that set the umask to 002.
fn is_own_group(metadata: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&metadata.gid())
}

/// Checks that other users cannot read a file, or use a folder. The group of root's file may: the
/// administrator grants that.
pub fn check_readers(path: &Path, metadata: &Metadata) -> Result<(), PathError> {
    let group_trusted = metadata.uid() == 0 || is_own_group(metadata);
    // A user that can enter a folder can read a file by its name.
    let bits = if metadata.is_dir() { 0o5 } else { 0o4 };
    if metadata.mode() & bits == 0 && (metadata.mode() & (bits << 3) == 0 || group_trusted) {
        return Ok(());
    }
    let (path, mode) = (path.to_path_buf(), metadata.mode() & 0o7777);
    Err(PathError::Accessible { path, mode, is_dir: metadata.is_dir() })
}

/// Checks that no other user can replace `path`: the folders above it, as written and with symbolic
/// links resolved, belong to the effective user or to root and are writable by no other user.
pub fn check_parents(path: &Path) -> Result<(), PathError> {
    let absolute = std::path::absolute(path).map_err(PathError::io(path))?;
    let Some(parent) = absolute.parent() else { return Ok(()) };
    let real = parent.canonicalize().map_err(PathError::io(parent))?;
    for folder in parent.ancestors().chain(real.ancestors()) {
        let metadata = fs::symlink_metadata(folder).map_err(PathError::io(folder))?;
        check_unwritable(folder, &metadata)?;
    }
    Ok(())
}

fn require_type(path: &Path, metadata: &Metadata, is_dir: bool) -> Result<(), PathError> {
    let path = || path.to_path_buf();
    if metadata.is_symlink() {
        return Err(PathError::Symlink(path()));
    }
    match is_dir {
        true if metadata.is_dir() => Ok(()),
        true => Err(PathError::WrongType { path: path(), expected: "folder" }),
        false if metadata.is_file() => Ok(()),
        false => Err(PathError::WrongType { path: path(), expected: "regular file" }),
    }
}
