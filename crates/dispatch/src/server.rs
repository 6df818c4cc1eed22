//! The worker server: hands scripts from the store to workers, and records how they ended.
//!
//! It alone opens the store. Everything that must survive it is in there, or in its state file:
//! killed and started again in the same folder it takes its claims and its workers back.

mod bodies;
mod claims;
mod core;
mod desk;
mod door;
mod doubts;
mod ends;
mod former;
mod line;
mod options;
mod state;

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore::{SessionId, services};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use self::core::{Core, Event};
use self::desk::Desk;
use self::door::{Door, Guest, Listener};
use self::former::former;
pub use self::options::{Launch, Options, ServerError, Timing};
use self::state::State;
use crate::access::{self, Access, remove_halves};
use crate::launch::{Intents, Launcher, Sight};
use crate::request::Ending;
use crate::script::End;
use crate::wire::Role;
use crate::{beside, link};

/// Events that may wait for the core; whoever has more to say waits.
const EVENTS: usize = 1024;

/// How often the number of workers is looked at.
const ROUND: Duration = Duration::from_millis(500);

/// How long a system may take to say why the job of a lost worker ended: a scheduler looks at its jobs every
/// so often, and cleans up before it says how one ended.
const DOUBT: Duration = Duration::from_secs(30);
/// How long a round of the launcher may take that was under way when the server ended: a job that was
/// just submitted must be known to be ended.
const LAST_ROUND: Duration = Duration::from_secs(90);
/// How often another port is tried where one is not free on every address.
const PORTS: u32 = 10;

/// What a server has done, in one life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Runs that ended well.
    pub done: u64,
    /// Runs that did not.
    pub failed: u64,
    session_lost: bool,
}

impl Report {
    fn on_end(&mut self, end: &End) {
        match end {
            End::Exited(0) => self.done += 1,
            _ => self.failed += 1,
        }
    }
}

/// A server that listens.
pub struct Server {
    options: Options,
    state: State,
    listeners: Vec<TcpListener>,
    beside: Option<UnixListener>,
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    seats: watch::Sender<usize>,
    /// Nobody else may serve from the same state: two would adopt each other's claims.
    lock: File,
}

/// Ends a server, from beside it.
#[derive(Clone)]
pub struct Control {
    events: mpsc::Sender<Event>,
    seats: watch::Receiver<usize>,
}

impl Control {
    /// Has the server come to its end.
    pub async fn end(&self, ending: Ending) {
        let _ = self.events.send(Event::End(ending)).await;
    }

    /// Returns once there are so many workers.
    pub async fn workers(&mut self, count: usize) {
        let _ = self.seats.wait_for(|seats| *seats >= count).await;
    }
}

impl Server {
    /// Listens, and leaves the access file.
    pub async fn bind(options: Options) -> Result<Self, ServerError> {
        let at = |path: &Path| path.display().to_string();
        for folder in [&options.folder, &options.state] {
            let made = std::fs::create_dir_all(folder);
            made.map_err(|error| ServerError::Io(at(folder), error))?;
        }
        let lock = lock(&options.state)?;
        // Its former life is over, or it would have the lock: whoever answers is somebody else.
        if let Ok(former) = Access::read(&options.folder)
            && link::connect(&former, Role::Client).await.is_ok()
        {
            return Err(ServerError::Served(options.folder));
        }
        remove_halves(&options.folder.join(access::FILE));
        let mut state = State::load(&options.state)
            .map_err(|error| ServerError::Io(at(&options.state), error))?;
        let listeners = listen(&options.listen, state.port).await?;
        let addresses =
            listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>();
        let addresses = addresses.map_err(|error| ServerError::Io("its address".into(), error))?;
        state.port = addresses.first().map_or(0, SocketAddr::port);
        let saved = state.save(&options.state);
        saved.map_err(|error| ServerError::Io(at(&options.state), error))?;
        let certificate = state.identity.certificate.clone();
        let (name, beside) = beside::listen().unzip();
        let access = Access { addresses, beside: name, certificate, secret: state.secret() };
        access.write(&options.folder)?;
        let seats = watch::Sender::new(0);
        let events = mpsc::channel(EVENTS);
        Ok(Self { options, state, listeners, beside, events, seats, lock })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// How it is ended.
    pub fn control(&self) -> Control {
        Control { events: self.events.0.clone(), seats: self.seats.subscribe() }
    }

    /// Serves until it is ended.
    // Boxed, so that it is compiled in this crate and not, less carefully, in the caller's.
    pub fn run(self) -> BoxFuture<'static, Result<Report, ServerError>> {
        Box::pin(self.serve())
    }

    async fn serve(self) -> Result<Report, ServerError> {
        let Self { mut options, mut state, listeners, beside, events: (send, events), seats, lock } =
            self;
        let launch = options.launch.take();
        let base = launch.as_ref().map_or("nobody", |launch| launch.system.name()).to_owned();
        let jobs = state.jobs.clone();
        let intents = Intents::load(&options.state)
            .map_err(|error| ServerError::Io(options.state.display().to_string(), error))?;
        let mut launcher = launch.map(|Launch { system, recipe, size }| {
            Launcher::new(system, recipe, size, jobs).with_intents(intents)
        });
        let Options { store, timing, .. } = &options;
        let session = SessionId::new();
        let (held, told) = former(&options, &mut state, session).await?;
        let held = claims::prepare(store, held, HashSet::new()).await;
        let mut core = Core::new(Arc::clone(store), session, *timing, seats);
        if launcher.is_some() {
            core = core.with_doubt(DOUBT);
        }
        core.adopt(held, &told, state.workers.clone());
        let door = Door::new(TlsAcceptor::from(state.identity.server()?), state.secret());
        let outlook = launcher.as_ref().map(Launcher::outlook);
        let desk = Desk::new(Arc::clone(store), send.clone(), outlook, base);
        let listeners = listeners.into_iter().map(Listener::Network);
        let doors = listeners.chain(beside.map(Listener::Beside)).map(|listener| {
            let (door, desk, send) = (door.clone(), desk.clone(), send.clone());
            door.open(listener, move |guest: Guest| {
                let (desk, send) = (desk.clone(), send.clone());
                async move {
                    match guest.role {
                        Role::Worker => line::carry(guest, send).await,
                        Role::Client => desk.serve(guest).await,
                    }
                }
            })
        });
        let doors = futures_util::future::join_all(doors);
        let upkeep = services::all(
            Arc::clone(store),
            move || Some(session),
            Arc::new(Notify::new()),
            options.retention,
        );
        let report = {
            let launcher = launcher.as_mut();
            let mut scale = pin!(scale(&desk, launcher, &send, &mut state, &options.state));
            let report = tokio::select! {
                report = core.run(events) => report,
                _ = doors => Report::default(),
                () = upkeep => Report::default(),
                () = &mut scale => Report::default(),
            };
            Access::remove(&options.folder);
            let _ = tokio::time::timeout(LAST_ROUND, scale).await;
            report
        };
        if let Some(mut launcher) = launcher {
            launcher.end().await;
            state.jobs.clone_from(launcher.jobs());
        }
        if report.session_lost {
            return Err(ServerError::SessionGone);
        }
        state.sessions.clear();
        state.workers.clear();
        let _ = state.save(&options.state);
        drop(lock);
        Ok(report)
    }
}

/// Keeps as many workers as there should be, and notes which there are, until the core has ended.
async fn scale(
    desk: &Desk,
    mut launcher: Option<&mut Launcher>,
    core: &mpsc::Sender<Event>,
    state: &mut State,
    folder: &Path,
) {
    while let Ok(view) = desk.view().await {
        let mut changed = false;
        if let Some(launcher) = &mut launcher {
            let sight = Sight {
                now: view.now,
                threads: view.threads + desk.ready().await,
                present: &view.present,
                lost: &view.lost,
                closing: view.closing,
            };
            let round = launcher.round(sight).await;
            if !round.released.is_empty() {
                let _ = core.send(Event::Release(round.released)).await;
            }
            if !round.fates.is_empty() {
                let _ = core.send(Event::Fates(round.fates)).await;
            }
            changed = state.keep_jobs(launcher.jobs());
        }
        changed |= state.keep_workers(view.workers);
        if changed && let Err(error) = state.save(folder) {
            tracing::warn!(%error, "the workers and their jobs cannot be noted");
        }
        tokio::select! {
            () = tokio::time::sleep(ROUND) => {}
            () = core.closed() => return,
        }
    }
}

/// Keeps others from serving from this folder, as long as what is returned lives.
fn lock(folder: &Path) -> Result<File, ServerError> {
    let failed = |error| ServerError::Io(folder.display().to_string(), error);
    let lock = File::open(folder).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(ServerError::Taken(folder.to_path_buf())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Listens on every address, all at one port: the former one if it is free.
async fn listen(addresses: &[IpAddr], port: u16) -> Result<Vec<TcpListener>, ServerError> {
    let mut tried = listen_at(addresses, port).await;
    for _ in 0..PORTS {
        if tried.is_ok() {
            break;
        }
        tried = listen_at(addresses, 0).await;
    }
    tried
}

async fn listen_at(addresses: &[IpAddr], port: u16) -> Result<Vec<TcpListener>, ServerError> {
    let mut port = port;
    let mut listeners = Vec::new();
    for address in addresses {
        let failed = |error| ServerError::Io(format!("cannot listen on {address}"), error);
        let listener = TcpListener::bind((*address, port)).await.map_err(failed)?;
        port = listener.local_addr().map_err(failed)?.port();
        listeners.push(listener);
    }
    Ok(listeners)
}
