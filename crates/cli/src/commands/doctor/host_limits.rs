//! Checks free disk space and the limit of open files.

use std::path::{Path, PathBuf};

use longshore::byte_size;
use rustix::process::{Resource, getrlimit};

use super::check_result::CheckResult;
use crate::settings::Settings;
use crate::store::StoreUrl;

/// Less free space is a warning.
const LOW_SPACE: u64 = 1_000_000_000;
/// Less free space is an error: SQLite needs space for its log to commit.
const MIN_SPACE: u64 = 100_000_000;
/// Files that a process has open beside its connections.
const RESERVED_FILES: u64 = 100;

/// Checks all limits.
pub(super) fn check(settings: &Settings) -> Vec<CheckResult> {
    let mut all: Vec<CheckResult> = folders(settings).iter().filter_map(|dir| disk_space(dir)).collect();
    all.push(descriptors(settings));
    all
}

/// Folders that are written to, each once.
fn folders(settings: &Settings) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let StoreUrl::Sqlite(path) = &settings.store {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        all.push(parent.map_or_else(|| ".".into(), Path::to_path_buf));
    }
    all.extend(settings.log.dir.clone());
    all.push(std::env::temp_dir());
    all.dedup();
    all
}

fn disk_space(dir: &Path) -> Option<CheckResult> {
    let facts = rustix::fs::statvfs(dir).ok()?;
    Some(judge_space(dir, facts.f_bavail.saturating_mul(facts.f_frsize), facts.f_favail))
}

fn judge_space(dir: &Path, free: u64, files: u64) -> CheckResult {
    let says = format!("{} free for {}", byte_size::format(free), dir.display());
    let mend = "free some; `[keep]` says how long ended units stay, `[log] keep` how many logs";
    match (free, files) {
        (_, 1..100) => {
            let says = format!("only {files} more files can be created in {}", dir.display());
            CheckResult::wrong("disk", says, "remove files there: the file system has no inodes left")
        }
        (..MIN_SPACE, _) => CheckResult::wrong("disk", says, mend),
        (..LOW_SPACE, _) => CheckResult::doubtful("disk", says, mend),
        _ => CheckResult::good("disk", says),
    }
}

fn descriptors(settings: &Settings) -> CheckResult {
    let limit = getrlimit(Resource::Nofile).current;
    let wanted = settings.web.connections as u64 + RESERVED_FILES;
    match limit {
        Some(limit) if limit < 256 => CheckResult::wrong(
            "files",
            format!("only {limit} files may be open at once"),
            "ulimit -n 65536, or LimitNOFILE=65536 in the unit",
        ),
        Some(limit) if limit < wanted => CheckResult::doubtful(
            "files",
            format!(
                "{limit} files may be open at once; `serve` accepts {} connections",
                wanted - RESERVED_FILES
            ),
            format!("ulimit -n {wanted}, LimitNOFILE={wanted} in the unit, or lower `web.connections`"),
        ),
        Some(limit) => CheckResult::good("files", format!("{limit} may be open at once")),
        None => CheckResult::good("files", "any number may be open at once"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::check_result::State;

    #[test]
    fn a_disk_is_judged_by_what_is_free() {
        let state = |free, files| judge_space(Path::new("."), free, files).state;
        assert_eq!(state(2 * LOW_SPACE, 1000), State::Good);
        assert_eq!(state(2 * LOW_SPACE, 0), State::Good, "some file systems do not count files");
        assert_eq!(state(2 * LOW_SPACE, 5), State::Wrong);
        assert_eq!(state(LOW_SPACE - 1, 1000), State::Doubtful);
        assert_eq!(state(MIN_SPACE - 1, 1000), State::Wrong);
    }
}
