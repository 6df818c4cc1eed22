//! The referee's server. Each task of a process has a connection and sends one event per line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longshore_core::PermitId;

use super::oracle::Oracle;

/// A line to the referee, which answers each with `continue` or `stop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermitEvent {
    /// Reported before a request or a renewal is sent.
    Requested(PermitId),
    /// Reported after the pool queued the request.
    Queued(PermitId),
    /// Reported after the pool granted a permit with this fence and weight.
    Granted(PermitId, u64, u32),
    /// Reported after the pool renewed the lease.
    Renewed(PermitId),
    /// Reported before the release, or after the lease was lost.
    Released(PermitId),
}

impl std::fmt::Display for PermitEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requested(id) => write!(f, "requested {id}"),
            Self::Queued(id) => write!(f, "queued {id}"),
            Self::Granted(id, fence, weight) => write!(f, "granted {id} {fence} {weight}"),
            Self::Renewed(id) => write!(f, "renewed {id}"),
            Self::Released(id) => write!(f, "released {id}"),
        }
    }
}

impl PermitEvent {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split_whitespace();
        let (name, id) = (parts.next()?, parts.next()?.parse().ok()?);
        Some(match name {
            "requested" => Self::Requested(id),
            "queued" => Self::Queued(id),
            "granted" => Self::Granted(id, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?),
            "renewed" => Self::Renewed(id),
            "released" => Self::Released(id),
            _ => return None,
        })
    }
}

/// A referee that listens for as long as the test runs.
#[derive(Debug, Clone)]
pub(super) struct Referee {
    oracle: Arc<Mutex<Oracle>>,
    finished: Arc<AtomicBool>,
}

impl Referee {
    /// Starts to listen and returns the address.
    pub(super) fn start(oracle: Oracle) -> std::io::Result<(Self, SocketAddr)> {
        let referee = Self { oracle: Arc::new(Mutex::new(oracle)), finished: Arc::default() };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, shared) = (listener.local_addr()?, referee.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(&client));
            }
        });
        Ok((referee, address))
    }

    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells every process to stop at its next event.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::SeqCst);
    }

    /// Records events until the client disconnects.
    fn serve(&self, client: &TcpStream) {
        // Nagle's algorithm would delay each answer.
        let _ = client.set_nodelay(true);
        for line in BufReader::new(client).lines().map_while(Result::ok) {
            let Some(event) = PermitEvent::parse(&line) else { return };
            let answer = if self.record(event) { "stop\n" } else { "continue\n" };
            let mut client = client;
            if client.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Returns whether the process should stop.
    fn record(&self, event: PermitEvent) -> bool {
        let mut oracle = self.oracle();
        // Read under the lock, so that times grow in the order of the events.
        let now = Instant::now();
        match event {
            PermitEvent::Requested(id) => oracle.record_request(id, now),
            PermitEvent::Queued(id) => oracle.record_wait(id, now),
            PermitEvent::Granted(id, fence, weight) => oracle.record_grant(id, fence, weight, now),
            PermitEvent::Renewed(id) => oracle.record_renewal(id, now),
            PermitEvent::Released(id) => oracle.record_release(id),
        }
        self.finished.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_it_was_said() {
        let id = PermitId::new();
        let parts = [
            PermitEvent::Requested(id),
            PermitEvent::Queued(id),
            PermitEvent::Granted(id, 7, 2),
            PermitEvent::Renewed(id),
            PermitEvent::Released(id),
        ];
        for event in parts {
            assert_eq!(PermitEvent::parse(&event.to_string()), Some(event));
        }
        assert_eq!(PermitEvent::parse("unknown"), None);
    }
}
