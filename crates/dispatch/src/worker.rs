//! A worker: takes scripts from a server, runs them, and tells how they ended until the server has
//! heard it.
//!
//! One task does everything: a script costs it little, and there is nothing to lock. What it holds is
//! in `hands`; a connection that breaks takes nothing away from it.

mod aside;
mod check;
mod hands;
mod orphans;
mod output;
mod run;
mod sentinel;
mod stop;
mod stream;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use longshore::session::Lease;
use longshore::time::SystemClock;
use longshore::{Backoff, SessionId, UnitId};
use longshore_pool::warden::Warden;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::aside::Aside;
use self::hands::Hands;
use self::orphans::Orphans;
use self::run::{Known, Shop};
use self::stop::{Stop, Why};
use self::stream::Streams;
use crate::access::Access;
use crate::link::{Link, LinkError, connect};
use crate::script::{End, Report};
use crate::wire::frame::{put, take};
use crate::wire::{FromWorker, Load, Register, Role, ToWorker, Word};

/// How long words gather while there is something to do: each message costs both sides something.
const GATHER: Duration = Duration::from_millis(20);
/// How long the last words to a server may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long before its end a worker takes nothing new, at most; else a tenth of its life.
const LAST_CALL: Duration = Duration::from_secs(60);

/// What a worker has to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its server's access file is.
    pub folder: PathBuf,
    /// How many threads its scripts may use together. Below 1 becomes 1.
    pub threads: u32,
    /// What else its scripts may take up.
    pub resources: BTreeMap<String, u32>,
    /// What it was launched as.
    pub launch: Option<u64>,
    /// How long it may live: it takes nothing new in time to end before.
    pub lifetime: Option<Duration>,
    /// It ends after so long without a script.
    pub idle: Option<Duration>,
    /// How long it looks for a server that is gone.
    pub server_lost: Duration,
    /// How long a drain may take.
    pub drain: Duration,
    /// Every script must be inside one of these; none means wherever its submitter says.
    pub roots: Vec<PathBuf>,
    /// What scripts inherit.
    pub env: Vec<(OsString, OsString)>,
    /// A script that runs before the first, and one after the last.
    pub hooks: Hooks,
    /// Scripts are not run, but count as done after this long: to measure everything else.
    pub idle_run: Option<Duration>,
    /// Nobody else in this process has children, and [`work`] is called on its first thread: who leaves
    /// a script's process group and outlives it is ended, too.
    pub alone: bool,
}

/// Scripts around a worker's life.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Before the first script. If it fails, the worker ends.
    pub before: Option<PathBuf>,
    /// After the last.
    pub after: Option<PathBuf>,
}

/// What a worker is told from beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Take nothing new, end what runs.
    Drain,
    /// End now.
    Stop,
}

/// How a worker's life went.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Life {
    /// Scripts that ended well.
    pub done: u64,
    /// Scripts that did not.
    pub failed: u64,
    /// Scripts that were interrupted by its end.
    pub interrupted: u64,
    /// Why it ended, for people.
    pub why: String,
}

/// Why a worker could not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no server.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is no `/dev/null`.
    #[error("/dev/null: {0}")]
    Nowhere(#[from] io::Error),
    /// There is no `bash`.
    #[error("there is no `bash` here")]
    NoBash,
    /// The hook before the first script failed.
    #[error("the hook before the first script {0}: {1}")]
    Hook(PathBuf, String),
}

/// Works until there is nothing more to do, or it is told to end.
pub async fn work(
    options: Options,
    mut commands: mpsc::Receiver<Command>,
    connected: impl Fn(std::net::SocketAddr),
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
                connected(link.address);
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

    fn introduction(&self) -> Register {
        let lifetime = self.options.lifetime;
        Register {
            uid: self.uid.clone(),
            host: self.shop.host.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            launch: self.options.launch,
            threads: self.options.threads,
            resources: self.options.resources.clone(),
            lifetime: lifetime.map(|whole| whole.saturating_sub(self.began.elapsed())),
            holds: self.hands.holds(),
        }
    }

    /// Talks to the server until the worker's end. An error means that the connection broke.
    async fn converse(
        &mut self,
        mut link: Link,
        commands: &mut mpsc::Receiver<Command>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        put(&FromWorker::Register(Box::new(self.introduction())), &mut bytes)?;
        // Until it has heard what is not ours any more, nothing is said twice.
        self.words = self.hands.again();
        let mut beat = Duration::from_secs(2);
        let mut next_beat = Instant::now();
        let mut told_of_drain = false;
        let mut gathered = None;
        loop {
            self.begin_scripts();
            if self.mood != Mood::Working && !told_of_drain {
                told_of_drain = true;
                put(&FromWorker::Draining, &mut bytes)?;
            }
            if Instant::now() >= next_beat {
                next_beat = Instant::now() + beat;
                put(&FromWorker::Beat(self.load()), &mut bytes)?;
            }
            // Whoever has scripts ahead need not hurry: the server has nothing to give it now.
            let gathering = match self.hands.has_ahead() && bytes.is_empty() {
                true if !self.words.is_empty() => {
                    Some(*gathered.get_or_insert(Instant::now() + GATHER))
                }
                _ => None,
            };
            let gathering = gathering.filter(|until| Instant::now() < *until);
            if gathering.is_none() && !self.words.is_empty() {
                gathered = None;
                put(&FromWorker::Said(std::mem::take(&mut self.words)), &mut bytes)?;
            }
            let over = self.is_over();
            if over {
                put(&FromWorker::Leaving, &mut bytes)?;
            }
            if !bytes.is_empty() {
                link.writer.write_all(&bytes).await?;
                link.writer.flush().await?;
                bytes.clear();
            }
            if over {
                let _ = link.writer.shutdown().await;
                return Ok(());
            }
            let wake = self.wake().min(next_beat).min(gathering.unwrap_or(next_beat));
            tokio::select! {
                frame = link.reader.next() => {
                    let frame = frame?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    self.hear(take(&frame)?, &mut beat);
                    while let Some(frame) = link.reader.ready()? {
                        self.hear(take(&frame)?, &mut beat);
                    }
                }
                Some((lease, report)) = self.running.next() => self.on_end(lease, report),
                command = commands.recv() => self.on_told(command.unwrap_or(Command::Stop)),
                () = sleep_until(wake) => self.look_at_the_clock(),
            }
            while let Some(Some((lease, report))) = self.running.next().now_or_never() {
                self.on_end(lease, report);
            }
        }
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

    fn hear(&mut self, word: ToWorker, beat: &mut Duration) {
        match word {
            ToWorker::Seated { beat: every, forget } => {
                *beat = every;
                let gone = self.hands.forget(&forget);
                self.words.retain(
                    |word| !matches!(word, Word::Ended(lease, _) if forget.contains(lease)),
                );
                self.stop_all(gone, Why::Cancelled);
            }
            ToWorker::Body(number, body) => {
                self.bodies.insert(number, Arc::new(Known::new(*body)));
            }
            ToWorker::Drop(number) => _ = self.bodies.remove(&number),
            ToWorker::Run(orders) => {
                for order in orders {
                    match self.mood {
                        Mood::Working => self.hands.take(Instant::now(), order),
                        _ => self.words.push(Word::Returned(order.lease)),
                    }
                }
            }
            ToWorker::Recall(leases) => self.words.extend(self.hands.give_back(Some(&leases))),
            ToWorker::Cancel(units) => self.cancel(units),
            ToWorker::Recorded(leases) => self.hands.recorded(&leases),
            ToWorker::Drain => self.heed(Command::Drain),
            ToWorker::Stop(why) => {
                self.life.why = why;
                self.heed(Command::Stop);
            }
        }
    }

    fn cancel(&mut self, units: Vec<UnitId>) {
        for unit in &units {
            if let Some(order) = self.hands.withdraw(*unit) {
                let report = run::unbegun(&self.shop, &order, End::Cancelled);
                self.words.push(self.hands.end_unbegun(order.lease, report));
            }
        }
        self.stop_all(units, Why::Cancelled);
    }

    fn stop_all(&mut self, units: Vec<UnitId>, why: Why) {
        for unit in units {
            if let Some(stop) = self.stops.get(&unit) {
                stop.tell(why);
            }
        }
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

    /// When to look at the clock.
    fn wake(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(60);
        let idle = self.options.idle.filter(|_| self.hands.is_idle());
        let drained = match self.mood {
            Mood::Draining(until) => Some(until),
            _ => None,
        };
        let idle = idle.map(|idle| self.idle_since + idle);
        let orphans = self.shop.orphans(|orphans| orphans.due()).flatten();
        let times = [idle, self.last_call(), drained, self.aside.next(), orphans];
        times.into_iter().flatten().min().unwrap_or(far).min(far)
    }

    /// When nothing new is taken any more.
    fn last_call(&self) -> Option<Instant> {
        let whole = self.options.lifetime.filter(|_| self.mood == Mood::Working)?;
        Some(self.began + whole.saturating_sub(last_hour(whole)))
    }

    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        self.shop.orphans(|orphans| orphans.look(now));
        for (lease, report) in self.aside.overdue(now) {
            self.settle(lease, report);
        }
        if let Mood::Draining(until) = self.mood
            && now >= until
        {
            self.heed(Command::Stop);
        }
        if self.last_call().is_some_and(|at| now >= at) {
            "its time is nearly over".clone_into(&mut self.life.why);
            self.heed(Command::Drain);
            if let (Mood::Draining(until), Some(whole)) = (&mut self.mood, self.options.lifetime) {
                // Its allocation began before it did: what is still running then is interrupted, and
                // told of, rather than killed.
                *until = self.began + whole.saturating_sub(last_hour(whole) / 4);
            }
        }
        let idle = self.options.idle.filter(|_| self.mood == Mood::Working && self.hands.is_idle());
        if idle.is_some_and(|idle| now >= self.idle_since + idle) {
            "it had nothing to do".clone_into(&mut self.life.why);
            self.heed(Command::Drain);
        }
    }

    fn load(&self) -> Load {
        let first = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let average = first("/proc/loadavg");
        let average = average.split(' ').next().and_then(|text| text.parse().ok());
        let memory = first("/proc/meminfo");
        let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let available =
            available.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
        Load {
            running: u32::try_from(self.hands.running()).unwrap_or(u32::MAX),
            average: average.unwrap_or(0.0),
            available_memory: available.unwrap_or(0) / 1024,
        }
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

/// How long before the end of so long a life nothing new is taken.
fn last_hour(whole: Duration) -> Duration {
    LAST_CALL.min(whole / 10)
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
