//! What the machine of a worker has: processors, memory, GPUs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The variable that says which GPUs CUDA programs see.
pub const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// The processors that this process may use.
pub(super) fn processors() -> BTreeSet<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Calls `start` while this thread may use these processors only: a process that it starts inherits them.
pub(super) fn with_processors<T>(
    processors: &[usize],
    start: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    let before = sched_getaffinity(None)?;
    let mut own = CpuSet::new();
    processors.iter().for_each(|cpu| own.set(*cpu));
    sched_setaffinity(None, &own)?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

/// Memory in MiB: of the machine, or of this process's control group if that has less.
pub fn memory() -> Option<u32> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().split(' ').next()?.parse::<u64>().ok()? * 1024;
    let limit = control_group_limits().into_iter().min();
    u32::try_from(limit.map_or(total, |limit| limit.min(total)) >> 20).ok()
}

/// Memory limits of this process's control groups and those above them, in bytes.
fn control_group_limits() -> Vec<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        match controllers {
            "" => Some((Path::new("/sys/fs/cgroup"), path, "memory.max")),
            "memory" => Some((Path::new("/sys/fs/cgroup/memory"), path, "memory.limit_in_bytes")),
            _ => None,
        }
    });
    let mut limits = Vec::new();
    for (root, path, file) in files {
        let folder: PathBuf = root.join(path.trim_start_matches('/'));
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(root)) {
            let limit = fs::read_to_string(folder.join(file)).ok();
            limits.extend(limit.and_then(|limit| limit.trim().parse::<u64>().ok()));
        }
    }
    limits
}

/// The names of the GPUs that CUDA programs see: as `CUDA_VISIBLE_DEVICES` says, or else the NVIDIA GPUs of
/// this machine by their numbers.
pub fn gpus(visible: Option<&str>) -> Vec<String> {
    if let Some(visible) = visible {
        let names = visible.split(',').map(str::trim);
        // As CUDA reads it: an invalid name hides those after it.
        let valid = names.take_while(|name| !name.is_empty() && *name != "-1" && *name != "NoDevFiles");
        return valid.map(str::to_owned).collect();
    }
    let devices = fs::read_dir("/dev").into_iter().flatten().flatten();
    let numbers =
        devices.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("nvidia")?.parse::<u32>().ok());
    let numbers: BTreeSet<u32> = numbers.collect();
    numbers.into_iter().map(|number| number.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_those_that_cuda_would_see() {
        assert_eq!(gpus(Some("3,1")), ["3", "1"]);
        assert_eq!(gpus(Some("GPU-8932f937,MIG-a1")), ["GPU-8932f937", "MIG-a1"]);
        assert_eq!(gpus(Some("0,-1,2")), ["0"]);
        assert_eq!(gpus(Some("")), [""; 0]);
        assert_eq!(gpus(Some("NoDevFiles")), [""; 0]);
    }

    #[test]
    fn a_started_process_has_the_processors_and_this_thread_keeps_its_own() {
        let all = processors();
        let first: Vec<usize> = all.iter().copied().take(1).collect();
        let output = with_processors(&first, || {
            std::process::Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).output()
        });
        let output = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(output.split_whitespace().last(), Some(first[0].to_string().as_str()));
        assert_eq!(processors(), all);
        assert!(memory().unwrap() > 0);
    }
}
