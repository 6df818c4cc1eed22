//! Maps signals to requests.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// A request to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SupervisorRequest {
    /// Drain all processes and exit; the second time: at once.
    End,
    /// Replace all processes.
    Refresh,
    /// Add a process to each section.
    ScaleUp,
    /// Remove a process from each section.
    ScaleDown,
}

pub(super) struct SupervisorSignals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    scale_up: unix::Signal,
    scale_down: unix::Signal,
}

impl SupervisorSignals {
    pub(super) fn new() -> io::Result<Self> {
        let raw = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            scale_up: raw(Signal::TTIN)?,
            scale_down: raw(Signal::TTOU)?,
        })
    }

    pub(super) async fn next(&mut self) -> SupervisorRequest {
        tokio::select! {
            _ = self.terminate.recv() => SupervisorRequest::End,
            _ = self.interrupt.recv() => SupervisorRequest::End,
            _ = self.hang_up.recv() => SupervisorRequest::Refresh,
            _ = self.scale_up.recv() => SupervisorRequest::ScaleUp,
            _ = self.scale_down.recv() => SupervisorRequest::ScaleDown,
        }
    }
}
