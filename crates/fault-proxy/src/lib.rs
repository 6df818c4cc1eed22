//! A TCP proxy on loopback that injects network faults, switchable at run time.
//!
//! It runs on a thread of its own, so that tests without a runtime use it as well. The kernel of this machine
//! acknowledges what a client sends to the proxy: TCP keepalives never see a fault, only the time limits of the
//! program do. For packets that the network drops, see `PrivateNetwork` of the testkit.

mod connection;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a proxy does with its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// Forwards everything at once.
    None,
    /// Forwards each byte this long after it arrived, in both directions.
    Latency(Duration),
    /// Forwards nothing, and keeps connections open. What is buffered is forwarded after the fault. One direction
    /// alone is a link that loses packets one way: TCP sends them again when it heals.
    Stall(Direction),
    /// Resets all connections, and each new one.
    Cut,
    /// Disconnects the server and leaves the clients of all present connections without an answer, also after the
    /// fault. New connections work.
    HalfOpen,
    /// Forwards this many bytes per second, in each direction of each connection.
    Drip(u32),
    /// Forwards the first half of a message, then resets the connection.
    ResetMidMessage,
}

/// The direction of a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
    /// Both.
    Both,
}

/// A proxy in front of one server. Dropping it closes all connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    link: Option<watch::Sender<LinkState>>,
    thread: Option<JoinHandle<()>>,
}

/// The present fault, and how often connections had to end: a connection that is older ends, however short the fault
/// was.
#[derive(Debug, Clone, Copy)]
struct LinkState {
    fault: LinkFault,
    cuts: u64,
    half_opens: u64,
}

impl FaultProxy {
    /// Listens on a free port of 127.0.0.1, and connects to `server`, as `host:port`, for each client.
    pub fn start(server: impl Into<String>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (link, state) = watch::channel(LinkState { fault: LinkFault::None, cuts: 0, half_opens: 0 });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = server.into();
        let thread = std::thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn(move || runtime.block_on(accept(listener, server, state)))?;
        Ok(Self { address, link: Some(link), thread: Some(thread) })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Injects a fault, instead of the one before.
    pub fn set(&self, fault: LinkFault) {
        let Some(link) = &self.link else { return };
        link.send_modify(|state| {
            state.fault = fault;
            state.cuts += u64::from(fault == LinkFault::Cut);
            state.half_opens += u64::from(fault == LinkFault::HalfOpen);
        });
    }

    /// Ends the fault.
    pub fn heal(&self) {
        self.set(LinkFault::None);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.link.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Accepts clients until the proxy is dropped.
async fn accept(listener: std::net::TcpListener, server: String, mut link: watch::Receiver<LinkState>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connection::serve(client, server.clone(), link.clone()));
            }
            changed = link.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
        }
    }
}
