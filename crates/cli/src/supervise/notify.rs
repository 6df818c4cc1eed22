//! Telling systemd how we are: its protocol is a line of text in a datagram (`sd_notify(3)`). Without
//! systemd nothing is told.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::env;

/// Whoever wants to know how we are.
#[derive(Debug, Default)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As the environment has it.
    pub fn from_env() -> Self {
        let to = std::env::var_os(env::NOTIFY_SOCKET).and_then(|name| {
            let socket = UnixDatagram::unbound().ok()?;
            Some((socket, address(name.as_bytes())?))
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_for_us =
            number(env::WATCHDOG_PID).is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number(env::WATCHDOG_USEC).filter(|micros| is_for_us && *micros > 0);
        Self { to, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// How often a sign of life is wanted: twice as often as it would be missed.
    pub fn every(&self) -> Option<Duration> {
        self.watchdog.map(|missed| missed / 2)
    }

    /// A sign of life.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            self.tell("WATCHDOG=1");
        }
    }

    /// All that should run does.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Everything is being replaced.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000) + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Everything ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// What is under way needs at least so long from now.
    pub fn patience(&self, time: Duration) {
        self.tell(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }

    fn tell(&self, text: &str) {
        if let Some((socket, to)) = &self.to {
            // If systemd does not listen there is nobody to tell.
            let _ = socket.send_to_addr(text.as_bytes(), to);
        }
    }
}

/// `@name` is an abstract one.
fn address(name: &[u8]) -> Option<SocketAddr> {
    match name {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)).ok(),
        _ => None,
    }
}
