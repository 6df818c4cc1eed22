//! Files that say that a script has ended, for workflows that watch for them.
//!
//! `JOB_FINISHED_<n>` only if it ended with code 0, `EXIT_CODE_JOB_<n>` with its code always; both
//! appear whole, and those of an earlier run are removed before the script begins.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::script::{End, Script};

/// What a run that died of a signal leaves as its code, as shells do.
const SIGNAL_EXIT_BASE: i32 = 128;

/// The files of one run.
pub(super) struct SentinelFiles {
    finished: PathBuf,
    exit_code: PathBuf,
}

impl SentinelFiles {
    /// The files that the script asks for.
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

    /// Removes what an earlier run left.
    pub(super) fn remove_old(&self) -> Vec<String> {
        let errors = [&self.finished, &self.exit_code].map(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Some(describe_error(path, &error))
            }
            _ => None,
        });
        errors.into_iter().flatten().collect()
    }

    /// Leaves what says how the script ended. One that was interrupted has not ended.
    pub(super) fn write(&self, end: &End) -> Vec<String> {
        let code = match end {
            End::Exited(code) => *code,
            End::Signalled(signal) => SIGNAL_EXIT_BASE + signal,
            End::TimedOut => 124,
            End::Cancelled | End::Interrupted | End::Refused(_) | End::Hindered(_) => {
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

/// Writes a file beside its place and moves it there.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

fn describe_error(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}
