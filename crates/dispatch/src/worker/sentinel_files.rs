//! Sentinel files report a script's end to workflows that watch for them.
//!
//! `EXIT_CODE_JOB_<n>` contains the exit code; `JOB_FINISHED_<n>` exists only if the code is 0.
//! Both are written atomically, and files of an earlier run are removed before the script starts.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::boundary::Boundary;
use crate::script::{RunEnd, Script};

/// Added to the number of a signal that ended the script, as shells do.
const SIGNAL_EXIT_BASE: i32 = 128;

/// The files of one run.
pub(super) struct SentinelFiles<'a> {
    folder: &'a Path,
    boundary: &'a Boundary,
    finished: String,
    exit_code: String,
}

impl<'a> SentinelFiles<'a> {
    /// The files that the script asks for, if it does.
    pub(super) fn for_script(script: &'a Script, index: Option<u64>, boundary: &'a Boundary) -> Option<Self> {
        let folder = script.sentinels.as_ref()?;
        let suffix = match (index, &script.name) {
            (Some(index), _) => index.to_string(),
            (None, Some(name)) => name.clone(),
            (None, None) => "1".to_owned(),
        };
        let file = |prefix: &str| format!("{prefix}_{suffix}");
        Some(Self { folder, boundary, finished: file("JOB_FINISHED"), exit_code: file("EXIT_CODE_JOB") })
    }

    /// Removes the files of an earlier run. An error means that the folder cannot be used; otherwise
    /// returns what could not be removed.
    pub(super) fn remove_old(&self) -> Result<Vec<String>, String> {
        let folder = match self.boundary.open_folder(self.folder) {
            // The script may create the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.describe("", &error)),
            Ok(folder) => folder,
        };
        let errors = [&self.finished, &self.exit_code].map(|name| {
            match unlinkat(&folder, name.as_str(), AtFlags::empty()) {
                Err(error) if error != Errno::NOENT => Some(self.describe(name, &error.into())),
                _ => None,
            }
        });
        Ok(errors.into_iter().flatten().collect())
    }

    /// Writes the files after the script's end. Returns errors. An interrupted script has not
    /// ended.
    pub(super) fn write(&self, end: &RunEnd) -> Vec<String> {
        let code = match end {
            RunEnd::Exited(code) => *code,
            RunEnd::Signalled(signal) => SIGNAL_EXIT_BASE + signal,
            RunEnd::TimedOut => 124,
            RunEnd::Cancelled
            | RunEnd::Interrupted
            | RunEnd::Refused(_)
            | RunEnd::NotStarted(_)
            | RunEnd::Unrecorded(_) => {
                return Vec::new();
            }
        };
        let folder = match self.boundary.open_folder(self.folder) {
            Ok(folder) => folder,
            Err(error) => return vec![self.describe("", &error)],
        };
        let mut remarks = Vec::new();
        let mut write = |name: &str, text: &str| {
            if let Err(error) = replace_file(&folder, name, text) {
                remarks.push(self.describe(name, &error));
            }
        };
        write(&self.exit_code, &format!("{code}\n"));
        if code == 0 {
            write(&self.finished, "");
        }
        remarks
    }

    fn describe(&self, name: &str, error: &io::Error) -> String {
        format!("{}: {error}", self.folder.join(name).display())
    }
}

/// Writes a temporary file beside the file and renames it.
fn replace_file(folder: &OwnedFd, name: &str, text: &str) -> io::Result<()> {
    let temporary = format!("{name}.{}.new", std::process::id());
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, &temporary, flags, Mode::from_raw_mode(0o666))?;
    File::from(file).write_all(text.as_bytes())?;
    Ok(renameat(folder, &temporary, folder, name)?)
}
