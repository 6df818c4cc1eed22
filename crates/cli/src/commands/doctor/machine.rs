//! Room on disks, and how much may be open at once.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;
use crate::settings::Settings;
use crate::size::brief;
use crate::store::StoreUrl;

/// Less is doubtful, …
const LITTLE: u64 = 1_000_000_000;
/// … and less than this wrong: SQLite needs room for its log to end a transaction.
const NOTHING: u64 = 100_000_000;
/// Files that a process has open beside its connections.
const OWN: u64 = 100;

/// Looks at all of it.
pub(super) fn look(settings: &Settings) -> Vec<Finding> {
    let mut all: Vec<Finding> = folders(settings).iter().filter_map(|dir| room(dir)).collect();
    all.push(descriptors(settings));
    all
}

/// Where is written, each once.
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

fn room(dir: &Path) -> Option<Finding> {
    let facts = rustix::fs::statvfs(dir).ok()?;
    Some(judged(dir, facts.f_bavail.saturating_mul(facts.f_frsize), facts.f_favail))
}

fn judged(dir: &Path, free: u64, files: u64) -> Finding {
    let says = format!("{} free for {}", brief(free), dir.display());
    let mend = "free some; `[keep]` says how long ended units stay, `[log] keep` how many logs";
    match (free, files) {
        (_, 1..100) => {
            let says = format!("only {files} more files can be made for {}", dir.display());
            Finding::wrong("disk", says, "remove files there: the file system has no inodes left")
        }
        (..NOTHING, _) => Finding::wrong("disk", says, mend),
        (..LITTLE, _) => Finding::doubtful("disk", says, mend),
        _ => Finding::good("disk", says),
    }
}

fn descriptors(settings: &Settings) -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let wanted = settings.web.limits.connections as u64 + OWN;
    match limit {
        Some(limit) if limit < 256 => Finding::wrong(
            "files",
            format!("only {limit} files may be open at once"),
            "ulimit -n 65536, or LimitNOFILE=65536 in the unit",
        ),
        Some(limit) if limit < wanted => Finding::doubtful(
            "files",
            format!(
                "{limit} files may be open at once; `serve` lets in {} connections",
                wanted - OWN
            ),
            format!(
                "ulimit -n {wanted}, LimitNOFILE={wanted} in the unit, or lower `web.connections`"
            ),
        ),
        Some(limit) => Finding::good("files", format!("{limit} may be open at once")),
        None => Finding::good("files", "any number may be open at once"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::State;

    #[test]
    fn a_disk_is_judged_by_what_is_free() {
        let state = |free, files| judged(Path::new("."), free, files).state;
        assert_eq!(state(2 * LITTLE, 1000), State::Good);
        assert_eq!(state(2 * LITTLE, 0), State::Good, "some file systems do not count files");
        assert_eq!(state(2 * LITTLE, 5), State::Wrong);
        assert_eq!(state(LITTLE - 1, 1000), State::Doubtful);
        assert_eq!(state(NOTHING - 1, 1000), State::Wrong);
    }
}
