//! CPU time of this process and its children, reported with each heartbeat.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Processes to visit at most: the measurement must stay cheap, whatever handlers start.
const MAX_PROCESSES: usize = 1_000;

/// CPU time of this process, its ended children and all its running descendants. `None` where
/// Linux's `/proc` is missing.
pub fn cpu_time() -> Option<Duration> {
    let mut ticks = process_ticks(Path::new("/proc/self"))?;
    let mut pending = children(Path::new("/proc/self"));
    let mut visited = 0;
    while let Some(pid) = pending.pop().filter(|_| visited < MAX_PROCESSES) {
        visited += 1;
        let process = Path::new("/proc").join(pid);
        // A process that has just ended is counted next time, among its parent's ended children.
        ticks += process_ticks(&process).unwrap_or(0);
        pending.extend(children(&process));
    }
    let millis = ticks.saturating_mul(1_000) / rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(millis))
}

/// Ticks of one process and its ended children.
fn process_ticks(process: &Path) -> Option<u64> {
    parse_ticks(&fs::read_to_string(process.join("stat")).ok()?)
}

/// Parses the line that `proc_pid_stat(5)` describes. The command name may contain anything,
/// including `)`.
fn parse_ticks(line: &str) -> Option<u64> {
    let (_, after) = line.rsplit_once(')')?;
    let fields: Vec<u64> =
        after.split_whitespace().skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    (fields.len() == 4).then(|| fields.iter().sum())
}

/// The running children of a process.
fn children(process: &Path) -> Vec<String> {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_processs_own_time_and_that_of_its_ended_children_are_added_up() {
        let line = "7 (a) (b 9) S 1 7 7 0 -1 4194560 1 2 3 4 50 6 700 8 20 0 1 0 99";
        assert_eq!(parse_ticks(line), Some(764));
        assert_eq!(parse_ticks("7 (a) S 1 7"), None);
        assert_eq!(parse_ticks(""), None);
    }

    #[test]
    fn children_that_run_are_counted() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let process = Path::new("/proc").join(child.id().to_string());
        // Ends once the child has used CPU time; a child that is not found would make it loop for
        // ever.
        while process_ticks(&process) == Some(0) {
            std::hint::spin_loop();
        }
        let found = children(Path::new("/proc/self")).contains(&child.id().to_string());
        let counted = process_ticks(&process);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found && counted > Some(0), "{found} {counted:?}");
        assert!(cpu_time() > Some(Duration::ZERO));
    }
}
