//! How much CPU time this process has used, with its children: a worker says it with each beat.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// So many processes below ours are looked at: a look must stay cheap, whatever handlers start.
const MOST: usize = 1_000;

/// CPU time of this process, of its children that have ended, and of those that run now, down to
/// the last. `None` where the system does not tell: this reads Linux's `/proc`.
pub fn cpu_time() -> Option<Duration> {
    let mut ticks = used(Path::new("/proc/self"))?;
    let mut below = children(Path::new("/proc/self"));
    let mut seen = 0;
    while let Some(pid) = below.pop().filter(|_| seen < MOST) {
        seen += 1;
        let process = Path::new("/proc").join(pid);
        // One that has ended meanwhile is counted next time, with those that have.
        ticks += used(&process).unwrap_or(0);
        below.extend(children(&process));
    }
    let millis = ticks.saturating_mul(1_000) / rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(millis))
}

/// Ticks of one process, and of its children that have ended.
fn used(process: &Path) -> Option<u64> {
    ticks(&fs::read_to_string(process.join("stat")).ok()?)
}

/// From the line that `proc_pid_stat(5)` describes. The name may hold anything, also `)`.
fn ticks(line: &str) -> Option<u64> {
    let (_, after) = line.rsplit_once(')')?;
    let fields: Vec<u64> =
        after.split_whitespace().skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    (fields.len() == 4).then(|| fields.iter().sum())
}

/// Processes that one has started and that run.
fn children(process: &Path) -> Vec<String> {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_processs_own_time_and_that_of_its_ended_children_are_added_up() {
        let line = "7 (a) (b 9) S 1 7 7 0 -1 4194560 1 2 3 4 50 6 700 8 20 0 1 0 99";
        assert_eq!(ticks(line), Some(764));
        assert_eq!(ticks("7 (a) S 1 7"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn children_that_run_are_counted() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let process = Path::new("/proc").join(child.id().to_string());
        // It ends when the child has used something; a child that is not found would hold it up for ever.
        while used(&process) == Some(0) {
            std::hint::spin_loop();
        }
        let found = children(Path::new("/proc/self")).contains(&child.id().to_string());
        let counted = used(&process);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found && counted > Some(0), "{found} {counted:?}");
        assert!(cpu_time() > Some(Duration::ZERO));
    }
}
