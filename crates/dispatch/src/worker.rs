//! A worker: takes scripts from a server, runs them, and tells how they ended until the server has
//! heard it.
//!
//! One task does everything: a script costs it little, and there is nothing to lock. What it holds is
//! in `hands`; a connection that breaks takes nothing away from it.

mod aside;
mod check;
mod hands;
mod hours;
mod options;
mod orphans;
mod output;
mod run;
mod sentinel;
mod stop;
mod stream;
mod talk;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use longshore::session::Lease;
use longshore::time::SystemClock;
use longshore::{Backoff, SessionId, UnitId};
use longshore_pool::warden::Warden;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::aside::Aside;
use self::hands::Hands;
pub use self::options::{Command, Hooks, Life, Options, WorkerError};
use self::orphans::Orphans;
use self::run::{Known, Shop};
use self::stop::{Stop, Why};
use self::stream::Streams;
use crate::access::Access;
use crate::link::{Link, LinkError, connect};
use crate::script::{End, Report};
use crate::wire::{Role, Word};

/// How long the last words to a server may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// Works until there is nothing more to do, or it is told to end.
// Boxed, so that it is compiled in this crate and not, less carefully, in the caller's.
pub fn work(
    options: Options,
    commands: mpsc::Receiver<Command>,
    connected: impl Fn(std::net::SocketAddr) + Send + 'static,
) -> BoxFuture<'static, Result<Life, WorkerError>> {
    Box::pin(run_worker(options, commands, Box::new(connected)))
}

async fn run_worker(
    options: Options,
    mut commands: mpsc::Receiver<Command>,
    connected: Box<dyn Fn(std::net::SocketAddr) + Send>,
) -> Result<Life, WorkerError> {
    let mut worker = Worker::new(options)?;
    let hooks = worker.options.hooks.clone();
    if let Some(hook) = hooks.before {
        let run = run::hook(Arc::clone(&worker.shop), hook.clone()).await;
        run.map_err(|problem| WorkerError::Hook(hook, problem))?;
    }
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    let mut lost = Instant::now();
    let folder = worker.options.folder.clone();
    let ended = loop {
        let link = tokio::select! {
            link = find(folder.clone()) => link,
            command = commands.recv() => {
                worker.on_told(command.unwrap_or(Command::Stop));
                if worker.hands.is_idle() {
                    break Ok(());
                }
                continue;
            }
        };
        match link {
            Ok(link) => {
                if let Some(address) = link.address {
                    connected(address);
                }
                backoff.reset();
                match worker.converse(link, &mut commands).await {
                    Ok(()) => break Ok(()),
                    Err(error) => tracing::warn!(%error, "the connection to the server broke"),
                }
                lost = Instant::now();
            }
            Err(error @ LinkError::Refused(_)) => break Err(error),
            Err(error) if lost.elapsed() >= worker.options.server_lost => break Err(error),
            Err(error) => tracing::debug!(%error, "no server yet"),
        }
        // Scripts go on meanwhile.
        let until = Instant::now() + backoff.next_wait();
        worker.run_until(until).await;
    };
    worker.close().await;
    if let Some(hook) = hooks.after
        && let Err(problem) = run::hook(Arc::clone(&worker.shop), hook.clone()).await
    {
        tracing::warn!(hook = %hook.display(), problem, "the hook after the last script failed");
    }
    ended?;
    Ok(worker.life)
}

async fn find(folder: PathBuf) -> Result<Link, LinkError> {
    connect(&Access::read(&folder)?, Role::Worker).await
}

struct Worker {
    options: Options,
    shop: Arc<Shop>,
    uid: String,
    began: Instant,
    hands: Hands,
    bodies: HashMap<u64, Arc<Known>>,
    stops: HashMap<UnitId, Arc<Stop>>,
    aside: Aside,
    running: FuturesUnordered<BoxFuture<'static, (Lease, Report)>>,
    /// What has to be said.
    words: Vec<Word>,
    idle_since: Instant,
    mood: Mood,
    life: Life,
    /// Ends those who outlive us, should we be killed.
    _warden: Arc<Warden>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Working,
    Draining(Instant),
    Leaving,
}

impl Worker {
    fn new(options: Options) -> Result<Self, WorkerError> {
        let warden = Warden::shared();
        let mut env = options.env.clone();
        let (name, mark) = warden.mark();
        // A script may leave processes behind that left its group.
        warden.sweep();
        let orphans = options.alone.then(|| Orphans::adopt(&format!("{name}={mark}")));
        let orphans = orphans.transpose().unwrap_or_else(|error| {
            tracing::warn!(%error, "processes that leave their script's group end with the worker");
            None
        });
        env.push((name.into(), mark.into()));
        let uid = SessionId::new().to_string();
        let shop = Shop {
            host: host(),
            bash: find_bash().ok_or(WorkerError::NoBash)?,
            roots: options.roots.clone(),
            env,
            clock: Arc::new(SystemClock),
            idle_run: options.idle_run,
            nowhere: File::options().read(true).write(true).open("/dev/null")?,
            streams: Streams::new(uid.clone()),
            orphans: Mutex::new(orphans),
        };
        let threads = options.threads.max(1);
        let now = Instant::now();
        Ok(Self {
            hands: Hands::new(threads, options.resources.clone()),
            options: Options { threads, ..options },
            shop: Arc::new(shop),
            uid,
            began: now,
            bodies: HashMap::new(),
            stops: HashMap::new(),
            aside: Aside::default(),
            running: FuturesUnordered::new(),
            words: Vec::new(),
            idle_since: now,
            mood: Mood::Working,
            life: Life::default(),
            _warden: warden,
        })
    }

    /// Lets scripts run without a server.
    async fn run_until(&mut self, until: Instant) {
        loop {
            self.begin_scripts();
            tokio::select! {
                Some((lease, report)) = self.running.next() => self.on_end(lease, report),
                () = sleep_until(until) => break,
            }
        }
        self.look_at_the_clock();
    }

    /// Begins what there is room for.
    fn begin_scripts(&mut self) {
        while let Some(begin) = self.hands.begin() {
            let lease = begin.order.lease;
            let Some(body) = self.bodies.get(&begin.order.body).cloned() else {
                let words = "the server did not say what is to be run".to_owned();
                let report = run::unbegun(&self.shop, &begin.order, End::Hindered(words));
                self.words.extend(self.hands.end(lease, report));
                continue;
            };
            self.words.push(Word::Started(lease));
            let stop = Arc::new(Stop::default());
            self.stops.insert(lease.unit, Arc::clone(&stop));
            let run = run::run(Arc::clone(&self.shop), begin, body, stop);
            self.running.push(Box::pin(run));
        }
    }

    fn on_end(&mut self, lease: Lease, report: Report) {
        if let Some((lease, report)) = self.aside.sort(lease, report) {
            self.settle(lease, report);
        }
    }

    /// Whoever is in charge here has the worker end.
    fn on_told(&mut self, command: Command) {
        for (lease, report) in self.aside.on_told() {
            self.settle(lease, report);
        }
        self.heed(command);
    }

    fn settle(&mut self, lease: Lease, report: Report) {
        self.stops.remove(&lease.unit);
        match report.end {
            End::Exited(0) => self.life.done += 1,
            End::Interrupted => self.life.interrupted += 1,
            _ => self.life.failed += 1,
        }
        self.words.extend(self.hands.end(lease, report));
        self.idle_since = Instant::now();
    }

    fn heed(&mut self, command: Command) {
        match (command, self.mood) {
            (Command::Drain, Mood::Working) => {
                self.mood = Mood::Draining(Instant::now() + self.options.drain);
                self.words.extend(self.hands.give_back(None));
            }
            (Command::Drain, _) => {}
            (Command::Stop, _) => {
                self.mood = Mood::Leaving;
                self.words.extend(self.hands.give_back(None));
                let running = self.stops.keys().copied().collect();
                self.stop_all(running, Why::Stopped);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.mood != Mood::Working && self.hands.is_empty() && self.words.is_empty()
    }

    /// Ends what still runs.
    async fn close(&mut self) {
        self.on_told(Command::Stop);
        let until = Instant::now() + FAREWELL;
        while !self.running.is_empty() && Instant::now() < until {
            tokio::select! {
                Some((lease, report)) = self.running.next() => self.on_end(lease, report),
                () = sleep_until(until) => {}
            }
        }
    }
}

/// The name of this machine.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

fn find_bash() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/bin", "/usr/bin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual).map(|folder| folder.join("bash"));
    places.find(|path| path.is_file())
}
