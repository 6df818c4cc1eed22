//! The dispatch server: hands scripts from the store to workers and records their results.
//!
//! Only the server opens the store. What must survive a restart is in the store or in the state
//! file: a server that is killed and started again in the same folder takes its claims and workers
//! back.

mod claimer;
mod client_api;
mod core;
mod handshake;
mod options;
mod restore;
mod result_writer;
mod script_cache;
mod state;
mod unresolved_losses;
mod wait_marks;
mod worker_connection;

use std::collections::HashSet;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore::{Client, LogAlertSink, SessionId, services};
use longshore_trusted_path::{PathError, check_private_tree, check_unwritable, create_private_dir};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use self::client_api::{Allocations, ClientApi};
use self::core::{Core, Event};
use self::handshake::{Acceptor, AuthenticatedPeer, Listener};
pub use self::options::{LaunchOptions, ServerError, ServerOptions, Timing};
use self::restore::restore_session;
use self::state::ServerState;
use self::wait_marks::WaitMarks;
use crate::access::{self, Access, remove_partial_writes};
use crate::launch::{AllocationTable, Launchers, SharedJournal};
use crate::request::{PoolStatus, ShutdownMode};
use crate::script::RunEnd;
use crate::wire::PeerRole;
use crate::{connection, local_socket};

/// Capacity of the core's event channel; senders wait when it is full.
const EVENT_BUFFER: usize = 1024;

/// Interval between two rounds of the launcher.
const SCALE_INTERVAL: Duration = Duration::from_millis(500);

/// How long the base system may take to report why a lost worker's job ended. Schedulers poll their
/// jobs, and clean up before they report an end.
const EXIT_REASON_TIMEOUT: Duration = Duration::from_secs(30);
/// How long shutdown waits for the launcher's current round. A job that was just submitted must be
/// known, so that it can be cancelled.
const FINAL_ROUND_TIMEOUT: Duration = Duration::from_secs(90);
/// How many ports are tried until one is free on every address.
const PORT_ATTEMPTS: u32 = 10;

/// What a server process has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerReport {
    /// Successful runs.
    pub done: u64,
    /// Other runs.
    pub failed: u64,
    session_lost: bool,
}

impl ServerReport {
    fn count(&mut self, end: &RunEnd) {
        match end {
            RunEnd::Exited(0) => self.done += 1,
            _ => self.failed += 1,
        }
    }
}

/// A server that listens.
pub struct Server {
    options: ServerOptions,
    state: ServerState,
    listeners: Vec<TcpListener>,
    local_listener: Option<UnixListener>,
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    worker_count: watch::Sender<usize>,
    /// Lock on the state folder: two servers with the same state would adopt each other's claims.
    lock: File,
}

/// Handle to a server, for other tasks of its process.
#[derive(Clone)]
pub struct ServerControl {
    events: mpsc::Sender<Event>,
    worker_count: watch::Receiver<usize>,
}

impl ServerControl {
    /// Shuts the server down.
    pub async fn shut_down(&self, ending: ShutdownMode) {
        let _ = self.events.send(Event::Shutdown(ending)).await;
    }

    /// Waits until this many workers are connected.
    pub async fn wait_for_workers(&mut self, count: usize) {
        let _ = self.worker_count.wait_for(|worker_count| *worker_count >= count).await;
    }
}

impl Server {
    /// Listens, and writes the access file.
    pub async fn bind(options: ServerOptions) -> Result<Self, ServerError> {
        let at = |path: &Path| path.display().to_string();
        prepare_folder(&options.folder).map_err(ServerError::Folder)?;
        prepare_state(&options.state).map_err(ServerError::State)?;
        let lock = lock(&options.state)?;
        // This process has the lock, so the server that wrote the file is gone. If one answers, it
        // has its state elsewhere.
        if let Ok(previous) = Access::read(&options.folder, PeerRole::Client)
            && connection::connect(&previous, PeerRole::Client).await.is_ok()
        {
            return Err(ServerError::AlreadyServed(options.folder));
        }
        for role in PeerRole::ALL {
            remove_partial_writes(&access::path(&options.folder, role));
        }
        let mut state =
            ServerState::load(&options.state).map_err(|error| ServerError::Io(at(&options.state), error))?;
        let listeners = listen(&options.listen, state.port).await?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>();
        let addresses =
            addresses.map_err(|error| ServerError::Io("cannot read the listening address".into(), error))?;
        state.port = addresses.first().map_or(0, SocketAddr::port);
        let saved = state.save(&options.state);
        saved.map_err(|error| ServerError::Io(at(&options.state), error))?;
        let certificate = state.identity.certificate.clone();
        let (name, local_listener) = local_socket::listen().unzip();
        let secret = state.secret(PeerRole::Worker);
        let access = Access { addresses, local_socket: None, certificate, secret };
        access.write(&options.folder, PeerRole::Worker)?;
        // The clients' file is last: programs wait for it.
        let access = Access { local_socket: name, secret: state.secret(PeerRole::Client), ..access };
        access.write(&options.folder, PeerRole::Client)?;
        let worker_count = watch::Sender::new(0);
        let events = mpsc::channel(EVENT_BUFFER);
        Ok(Self { options, state, listeners, local_listener, events, worker_count, lock })
    }

    /// Addresses that it listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// A handle to the server.
    pub fn control(&self) -> ServerControl {
        ServerControl { events: self.events.0.clone(), worker_count: self.worker_count.subscribe() }
    }

    /// Serves until it is shut down.
    // Boxed, so that it is compiled in this crate. In the caller's it would be optimised less.
    pub fn run(self) -> BoxFuture<'static, Result<ServerReport, ServerError>> {
        Box::pin(self.serve())
    }

    async fn serve(self) -> Result<ServerReport, ServerError> {
        let Self {
            mut options,
            mut state,
            listeners,
            local_listener,
            events: (send, events),
            worker_count,
            lock,
        } = self;
        let launch = options.launch.take();
        let fixed_status = fixed_status(launch.as_ref());
        let unreadable = |error| ServerError::Io(options.state.display().to_string(), error);
        let (mut launchers, mut allocations) = (None, None);
        if let Some(LaunchOptions { first, setup, .. }) = launch {
            let table = Arc::new(AllocationTable::load(&options.state, first).map_err(unreadable)?);
            let journal = SharedJournal::load(&options.state).map_err(unreadable)?;
            let jobs = state.jobs.clone();
            launchers = Some(Launchers::new(Arc::clone(&table), setup.clone(), jobs, journal));
            let only_local = listeners
                .iter()
                .all(|listener| listener.local_addr().is_ok_and(|address| address.ip().is_loopback()));
            allocations = Some(Allocations { table, setup, only_local });
        }
        let ServerOptions { store, timing, .. } = &options;
        let session = SessionId::new();
        let (held, worker_leases) = restore_session(&options, &mut state, session).await?;
        let held = claimer::prepare(store, held, HashSet::new()).await;
        let core = Core::new(Arc::clone(store), session, *timing, worker_count);
        let mut core = core.with_allocations(allocations.as_ref().map(|all| Arc::clone(&all.table)));
        if launchers.is_some() {
            core = core.with_exit_reason_timeout(EXIT_REASON_TIMEOUT);
        }
        core.restore(held, &worker_leases, state.workers.clone());
        let tls = TlsAcceptor::from(state.identity.server_config()?);
        let acceptor = Acceptor::new(tls, &state);
        let idle_seen_at = match state.idle_seen_at {
            Some(at) => at,
            None => Client::new(Arc::clone(store)).store_time().await?,
        };
        let wait_marks = Arc::new(WaitMarks::new(idle_seen_at, options.retention.failed));
        let api = ClientApi::new(Arc::clone(store), send.clone(), allocations, fixed_status, wait_marks);
        let listeners = listeners.into_iter().map(Listener::Tcp);
        let accept_loops = listeners.chain(local_listener.map(Listener::Local)).map(|listener| {
            let (acceptor, api, send) = (acceptor.clone(), api.clone(), send.clone());
            acceptor.accept_loop(listener, move |peer: AuthenticatedPeer| {
                let (api, send) = (api.clone(), send.clone());
                async move {
                    match peer.role {
                        PeerRole::Worker => worker_connection::run(peer, send).await,
                        PeerRole::Client => api.serve(peer).await,
                    }
                }
            })
        });
        let accept_loops = futures_util::future::join_all(accept_loops);
        let maintenance = services::run_all(
            Arc::clone(store),
            move || Some(session),
            Arc::new(Notify::new()),
            options.retention,
            Arc::new(LogAlertSink),
        );
        let serving = async {
            let report = {
                let launchers = launchers.as_mut();
                let mut scaling = pin!(scale_loop(&api, launchers, &send, &mut state, &options.state));
                let report = tokio::select! {
                    report = core.run(events) => report,
                    () = maintenance => ServerReport::default(),
                    () = &mut scaling => ServerReport::default(),
                };
                let _ = tokio::time::timeout(FINAL_ROUND_TIMEOUT, scaling).await;
                report
            };
            if let Some(mut launchers) = launchers {
                launchers.cancel_all().await;
                state.jobs = launchers.jobs();
            }
            if !report.session_lost {
                state.sessions.clear();
                state.workers.clear();
                state.set_idle_seen_at(api.idle_seen_at());
                let _ = state.save(&options.state);
            }
            report
        };
        // Connections stay open until no worker and no job is left: clients wait for that.
        let report = tokio::select! {
            report = serving => report,
            _ = accept_loops => ServerReport::default(),
        };
        Access::remove(&options.folder);
        drop(lock);
        match report.session_lost {
            true => Err(ServerError::SessionGone),
            false => Ok(report),
        }
    }
}

/// The part of the status that does not change.
fn fixed_status(launch: Option<&LaunchOptions>) -> PoolStatus {
    launch.map_or_else(
        || PoolStatus { base: "nobody".to_owned(), ..PoolStatus::default() },
        |launch| PoolStatus {
            base: launch.first.base.name().to_owned(),
            roots: launch.roots.clone(),
            allowed_env: launch.allowed_env.clone(),
            ..PoolStatus::default()
        },
    )
}

/// Starts and releases workers and saves which there are, until the core has ended.
async fn scale_loop(
    api: &ClientApi,
    mut launchers: Option<&mut Launchers>,
    core: &mpsc::Sender<Event>,
    state: &mut ServerState,
    folder: &Path,
) {
    while let Ok(view) = api.view().await {
        let mut changed = false;
        if let Some(launchers) = &mut launchers {
            let mut demand = view.demand;
            if launchers.is_elastic() {
                demand.extend(api.ready_demand().await);
            }
            let (present, lost) = (&view.present, &view.lost);
            let round = launchers.run_round(view.now, &demand, present, lost, view.shutting_down).await;
            for (workers, limit) in round.released {
                let _ = core.send(Event::Release(workers, limit)).await;
            }
            if !round.exit_reasons.is_empty() {
                let _ = core.send(Event::ExitReasons(round.exit_reasons)).await;
            }
            changed = state.set_jobs(launchers.jobs());
        }
        changed |= state.set_workers(view.workers);
        changed |= state.set_idle_seen_at(api.idle_seen_at());
        if changed && let Err(error) = state.save(folder) {
            tracing::warn!(%error, "saving the workers and their jobs failed");
        }
        tokio::select! {
            () = tokio::time::sleep(SCALE_INTERVAL) => {}
            () = core.closed() => return,
        }
    }
}

/// Creates the folder of a pool with mode 0700, or checks that no other user can write to it. The
/// folders above it may be a group's: peers check the access file itself, and the state is elsewhere
/// or checked with its parents.
pub fn prepare_folder(folder: &Path) -> Result<(), PathError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let metadata = created.and_then(|()| std::fs::metadata(folder));
    check_unwritable(folder, &metadata.map_err(PathError::io(folder))?)
}

/// Creates the state folder with mode 0700, or checks that it and everything in it is private:
/// write access to it decides which scripts run.
pub fn prepare_state(folder: &Path) -> Result<(), PathError> {
    create_private_dir(folder)?;
    check_private_tree(folder)
}

/// Locks the state folder. The lock is held until the returned file is dropped.
fn lock(folder: &Path) -> Result<File, ServerError> {
    let failed = |error| ServerError::Io(folder.display().to_string(), error);
    let lock = File::open(folder).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(ServerError::StateLocked(folder.to_path_buf())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Listens on all addresses with one port: the previous one, if it is free.
async fn listen(addresses: &[IpAddr], port: u16) -> Result<Vec<TcpListener>, ServerError> {
    let mut bound = listen_at(addresses, port).await;
    for _ in 0..PORT_ATTEMPTS {
        if bound.is_ok() {
            break;
        }
        bound = listen_at(addresses, 0).await;
    }
    bound
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
