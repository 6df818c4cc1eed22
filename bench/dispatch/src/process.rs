//! Child processes, and the resources they used.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// A child process, killed on drop.
pub(crate) struct Process(Child);

/// The resources that a process used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) cpu: Duration,
    pub(crate) memory_mb: f64,
}

impl Process {
    /// Starts this program in another role.
    pub(crate) fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).stdin(Stdio::null());
        Ok(Self(command.spawn().context("cannot start myself")?))
    }

    /// The resources used so far, without those of its children.
    pub(crate) fn used(&self) -> Result<Used> {
        let proc = Path::new("/proc").join(self.0.id().to_string());
        let stat = std::fs::read_to_string(proc.join("stat"))?;
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let fields: Vec<i64> = after.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        // The state field is not a number, so utime and stime are the eleventh and twelfth numbers.
        let ticks = fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0);
        let status = std::fs::read_to_string(proc.join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes: f64 =
            line.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0.0);
        // A tick is a hundredth of a second on every Linux.
        Ok(Used { cpu: Duration::from_millis(u64::try_from(ticks)? * 10), memory_mb: kilobytes / 1024.0 })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
