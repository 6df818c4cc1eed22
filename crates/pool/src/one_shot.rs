//! A fresh process for each call: for code that leaks, crashes or must not keep state.

use std::io;
use std::time::Duration;

use rustix::process::Pid;

use crate::error::CallError;
use crate::pool::WorkerPool;
use crate::process::{ProcessConfig, Processes};
use crate::program::Program;
use crate::settings::PoolSettings;

/// Resource limits of a process, enforced by the kernel.
///
/// ```
/// use std::time::Duration;
/// use longshore_pool::ResourceLimits;
///
/// let limits = ResourceLimits::default().memory(512 << 20).cpu_time(Duration::from_secs(10)).files(64);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    memory: Option<u64>,
    cpu_seconds: Option<u64>,
    files: Option<u64>,
    processes: Option<u64>,
    file_size: Option<u64>,
    warm: usize,
}

impl ResourceLimits {
    /// Bytes of address space. Memory that is mapped but not used counts too: Node and the JVM need
    /// much more than they use.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// CPU time, start-up included, in whole seconds, at least one. At the limit the process is
    /// killed.
    #[must_use]
    pub fn cpu_time(mut self, time: Duration) -> Self {
        self.cpu_seconds = Some(time.as_secs().max(1));
        self
    }

    /// Open files, standard streams included.
    #[must_use]
    pub fn files(mut self, files: u64) -> Self {
        self.files = Some(files);
        self
    }

    /// Processes and threads, counted over all of the same user. Not enforced for root.
    #[must_use]
    pub fn processes(mut self, processes: u64) -> Self {
        self.processes = Some(processes);
        self
    }

    /// Size in bytes of any file that the process writes.
    #[must_use]
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.file_size = Some(bytes);
        self
    }

    /// Processes that are started before a call needs them, so that the call does not wait for
    /// their start. Default: none.
    #[must_use]
    pub fn warm(mut self, processes: usize) -> Self {
        self.warm = processes;
        self
    }

    /// Applies the limits to a process that waits for its first message.
    #[cfg(target_os = "linux")]
    pub(crate) fn set(&self, pid: Pid) -> io::Result<()> {
        use rustix::process::{Resource, Rlimit, prlimit};
        let limits = [
            (Resource::As, self.memory),
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Nofile, self.files),
            (Resource::Nproc, self.processes),
            (Resource::Fsize, self.file_size),
        ];
        for (resource, limit) in limits {
            if limit.is_some() {
                prlimit(Some(pid), resource, Rlimit { current: limit, maximum: limit })?;
            }
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn set(&self, _: Pid) -> io::Result<()> {
        let none = Self { warm: self.warm, ..Self::default() };
        match *self == none {
            true => Ok(()),
            false => Err(io::Error::other("limits can be set on Linux only; use a wrapper command")),
        }
    }
}

impl WorkerPool {
    /// A pool that starts a fresh process for each call, `max` at a time, each within `limits`.
    /// `min` is ignored: see [`ResourceLimits::warm`].
    pub async fn one_shot(
        name: impl Into<String>,
        program: Program,
        limits: ResourceLimits,
        mut settings: PoolSettings,
    ) -> Result<Self, CallError> {
        settings.min = limits.warm.min(settings.max);
        // Each process makes one call, so the limit never applies.
        settings.max_calls = None;
        let backend = Processes::new(ProcessConfig { program, one_call: true, limits });
        Self::open(name.into(), settings, Box::new(backend)).await
    }
}
