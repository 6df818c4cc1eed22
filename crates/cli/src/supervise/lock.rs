//! The supervisor's number in a file, and a lock on that file: whoever wants to signal it knows that it
//! lives, and a second supervisor is kept out. The lock goes with the process, however that ends; the
//! file stays.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use rustix::process::Pid;

use crate::error::{WithHint, hinted};

/// The supervisor's place, held as long as this lives.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the place.
    pub fn take(path: &Path) -> anyhow::Result<Self> {
        let mut options = File::options();
        let file = options.create(true).truncate(false).read(true).write(true).open(path);
        let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                let error = anyhow!("another supervisor runs: process {}", text.trim());
                let hint = "end it first, or give this one a `supervise.pid_file` of its own";
                return Err(hinted(error, hint));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Nobody is misled if this fails: the lock tells whether the number is good.
        let _ = self.0.set_len(0);
    }
}

/// The supervisor that runs.
pub fn holder(path: &Path) -> anyhow::Result<Pid> {
    let none = || anyhow!("no supervisor runs here: nobody holds {}", path.display());
    let hint = "`longshore supervise` starts one; `supervise.pid_file` says where it is looked for";
    let mut file = File::open(path).map_err(|_| none()).hint(hint)?;
    if file.try_lock_shared().is_ok() {
        return Err(none()).hint(hint);
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| anyhow!("{} does not hold the number of a process", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_kept_out_and_told_who_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        assert!(holder(&path).is_err(), "there is no file");
        let lock = Lock::take(&path).unwrap();
        let refused = Lock::take(&path).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        assert_eq!(holder(&path).unwrap(), rustix::process::getpid());
        drop(lock);
        assert!(holder(&path).is_err(), "it is gone");
        Lock::take(&path).unwrap();
    }
}
