//! Sentinel files report a script's end to workflows that watch for them.
//!
//! `EXIT_CODE_JOB_<n>` contains the exit code; `JOB_FINISHED_<n>` exists only if the code is 0.
//! Both are written atomically, and files of an earlier run are removed before the script starts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::script::{RunEnd, Script};

/// Added to the number of a signal that ended the script, as shells do.
const SIGNAL_EXIT_BASE: i32 = 128;

/// The files of one run.
pub(super) struct SentinelFiles {
    finished: PathBuf,
    exit_code: PathBuf,
}

impl SentinelFiles {
    /// The files that the script asks for, if it does.
    pub(super) fn for_script(script: &Script, index: Option<u64>) -> Option<Self> {
        let folder = script.sentinels.as_ref()?;
        let suffix = match (index, &script.name) {
            (Some(index), _) => index.to_string(),
            (None, Some(name)) => name.clone(),
            (None, None) => "1".to_owned(),
        };
        let file = |prefix: &str| folder.join(format!("{prefix}_{suffix}"));
        Some(Self { finished: file("JOB_FINISHED"), exit_code: file("EXIT_CODE_JOB") })
    }

    /// Removes the files of an earlier run. Returns errors.
    pub(super) fn remove_old(&self) -> Vec<String> {
        let errors = [&self.finished, &self.exit_code].map(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Some(describe_error(path, &error)),
            _ => None,
        });
        errors.into_iter().flatten().collect()
    }

    /// Writes the files after the script's end. Returns errors. An interrupted script has not
    /// ended.
    pub(super) fn write(&self, end: &RunEnd) -> Vec<String> {
        let code = match end {
            RunEnd::Exited(code) => *code,
            RunEnd::Signalled(signal) => SIGNAL_EXIT_BASE + signal,
            RunEnd::TimedOut => 124,
            RunEnd::Cancelled | RunEnd::Interrupted | RunEnd::Refused(_) | RunEnd::NotStarted(_) => {
                return Vec::new();
            }
        };
        let mut remarks = Vec::new();
        let mut write = |path: &Path, text: &str| {
            if let Err(error) = replace_file(path, text) {
                remarks.push(describe_error(path, &error));
            }
        };
        write(&self.exit_code, &format!("{code}\n"));
        if code == 0 {
            write(&self.finished, "");
        }
        remarks
    }
}

/// Writes a temporary file beside `path` and renames it.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

fn describe_error(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}
