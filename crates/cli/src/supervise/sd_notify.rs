//! Notifies systemd of the supervisor's state: a line of text in a datagram (`sd_notify(3)`).
//! Without systemd nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::env;

/// The notification socket.
#[derive(Debug, Default)]
pub struct SdNotify {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl SdNotify {
    /// Reads the environment.
    pub fn from_env() -> Self {
        let to = std::env::var_os(env::NOTIFY_SOCKET).and_then(|name| {
            let socket = UnixDatagram::unbound().ok()?;
            Some((socket, address(name.as_bytes())?))
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_for_us = number(env::WATCHDOG_PID).is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number(env::WATCHDOG_USEC).filter(|micros| is_for_us && *micros > 0);
        Self { to, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// The interval of watchdog notifications: half the watchdog's timeout.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|missed| missed / 2)
    }

    /// Sends a watchdog notification.
    pub fn send_watchdog(&self) {
        if self.watchdog.is_some() {
            self.send("WATCHDOG=1");
        }
    }

    /// All processes run.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// All processes are being replaced.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000) + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The supervisor stops.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Extends systemd's timeout to at least this long from now.
    pub fn extend_timeout(&self, time: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }

    fn send(&self, text: &str) {
        if let Some((socket, to)) = &self.to {
            // If systemd does not listen, nothing can be reported.
            let _ = socket.send_to_addr(text.as_bytes(), to);
        }
    }
}

/// `@name` is an abstract socket.
fn address(name: &[u8]) -> Option<SocketAddr> {
    match name {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)).ok(),
        _ => None,
    }
}
