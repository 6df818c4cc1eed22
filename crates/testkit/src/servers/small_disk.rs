//! A file system in memory that a test can fill. Needs root, and `mount`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::os_user;

/// The file that fills the disk.
const BALLAST: &str = "ballast";

/// A small tmpfs. Dropping it unmounts it.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Creates a folder and mounts a file system of this many megabytes there. Without root, fails with
    /// [`io::ErrorKind::PermissionDenied`].
    pub fn mount(folder: &Path, megabytes: u32) -> io::Result<Self> {
        if !os_user::is_root() {
            let message = "a small disk needs root to mount a tmpfs";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        fs::create_dir(folder)?;
        let disk = Self { folder: folder.to_owned() };
        disk.run_mount(&["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=0711"), "tmpfs"])?;
        Ok(disk)
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Changes its size.
    pub fn resize(&self, megabytes: u32) -> io::Result<()> {
        self.run_mount(&["-o", &format!("remount,size={megabytes}m")])
    }

    /// Fills it to the last byte.
    pub fn fill(&self) -> io::Result<()> {
        let mut ballast = fs::File::create(self.folder.join(BALLAST))?;
        for size in [1 << 20, 1 << 12, 1] {
            let bytes = vec![0; size];
            loop {
                match ballast.write_all(&bytes) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Frees the space that [`fill`](Self::fill) took.
    pub fn free(&self) -> io::Result<()> {
        fs::remove_file(self.folder.join(BALLAST))
    }

    fn run_mount(&self, args: &[&str]) -> io::Result<()> {
        let mut command = Command::new("mount");
        command.args(args).arg(&self.folder);
        super::run(command).map(drop)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that was just killed may still hold a file.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}
