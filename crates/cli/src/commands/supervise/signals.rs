//! Signals as wishes.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// What somebody wants of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Drain all and end; again: at once.
    End,
    /// Replace all.
    Refresh,
    /// One more of each.
    More,
    /// One fewer of each.
    Fewer,
}

pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    more: unix::Signal,
    fewer: unix::Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let raw = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            more: raw(Signal::TTIN)?,
            fewer: raw(Signal::TTOU)?,
        })
    }

    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.hang_up.recv() => Wish::Refresh,
            _ = self.more.recv() => Wish::More,
            _ = self.fewer.recv() => Wish::Fewer,
        }
    }
}
