//! The process' one writer: a thread that commits whatever has gathered in one transaction.
//!
//! While a commit is under way, further verbs gather; the next commit takes them all. No timer
//! delays a lone one. Each verb has a savepoint of its own: one that fails takes nothing of its
//! neighbours with it.
//!
//! Commits themselves do not wait for the disk: verbs that must survive a power failure are
//! answered by the [`Syncer`] once the log is on disk, while the writer goes on. So claims and
//! beats never wait behind an fsync, and one fsync serves every caller that was waiting.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longshore_core::{Clock, Error, Result};
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use crate::busy::patiently;
use crate::error::{Translate, translate};
use crate::known::Known;
use crate::sync::Syncer;
use crate::tx::Tx;

/// What must be true of a verb when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It survives a power failure (as far as the store's `synchronous` promises).
    Durable,
    /// It survives this process.
    Relaxed,
}

/// Verbs in one transaction at most, so that no caller waits for a commit without end.
const GROUP: usize = 512;

/// How long the writer looks for more before it sleeps.
const LINGER: Duration = Duration::from_micros(300);

/// Tells this process' waiters what happened.
pub(crate) struct Signals {
    /// Counts commits after which something may be claimable.
    pub(crate) ready: watch::Sender<u64>,
    /// Counts commits.
    pub(crate) changed: watch::Sender<u64>,
    /// The last entry of the change feed that we know of.
    pub(crate) last_change: AtomicU64,
}

impl Signals {
    pub(crate) fn new() -> Self {
        let (ready, changed) = (watch::Sender::new(1), watch::Sender::new(1));
        Self { ready, changed, last_change: AtomicU64::new(0) }
    }

    fn raise(&self, woke: bool, last_change: u64) {
        self.last_change.fetch_max(last_change, Ordering::Relaxed);
        self.changed.send_modify(|count| *count += 1);
        if woke {
            self.ready.send_modify(|count| *count += 1);
        }
    }
}

/// The way to the writer thread.
pub(crate) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Message {
    Job(Job),
    /// Look whether another process has committed.
    LookAround,
}

struct Job {
    durability: Durability,
    run: Box<dyn FnOnce(Chance<'_>) -> Ran + Send>,
}

/// A verb's turn: to run, or to hear why it cannot.
enum Chance<'c> {
    Run(&'c Connection, &'c dyn Clock, &'c mut Known),
    Refuse(Error),
}

struct Ran {
    commit: bool,
    woke: bool,
    last_change: u64,
    answer: Answer,
}

/// Tells a caller whether its verb is committed.
pub(crate) type Answer = Box<dyn FnOnce(Result<()>) + Send>;

impl Writer {
    /// Starts the thread on a connection of its own.
    pub(crate) fn start(
        db: Connection,
        syncer: Option<Syncer>,
        busy_timeout: Duration,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
    ) -> Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        db.busy_timeout(Duration::ZERO).or_translate()?;
        db.pragma_update(None, "synchronous", "NORMAL").or_translate()?;
        let mut state =
            State { db, syncer, busy_timeout, clock, signals, known: Known::default(), seen: 0 };
        state.seen = state.data_version()?;
        state.signals.last_change.store(state.last_change()?, Ordering::Relaxed);
        let thread = std::thread::Builder::new()
            .name("longshore-sqlite".to_owned())
            .spawn(move || state.serve(&inbox))
            .map_err(|error| Error::Unavailable {
                message: "no thread for the database writer".to_owned(),
                source: Some(Box::new(error)),
            })?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    /// Runs a verb in the next transaction and waits for its commit.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        durability: Durability,
        verb: impl FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let run = Box::new(move |chance: Chance<'_>| {
            let (result, commit, woke, last_change) = match chance {
                Chance::Refuse(error) => (Err(error), false, false, 0),
                Chance::Run(db, clock, known) => run_verb(verb, db, clock, known),
            };
            let answer: Answer = Box::new(move |committed| {
                // The caller may have gone away; what was committed stays.
                let _ = answer.send(result.and_then(|value| committed.map(|()| value)));
            });
            Ran { commit, woke, last_change, answer }
        });
        self.post(Message::Job(Job { durability, run }))?;
        answered.await.map_err(|_| closed())?
    }

    /// Asks for a look whether another process has committed.
    pub(crate) fn look_around(&self) -> Result<()> {
        self.post(Message::LookAround)
    }

    fn post(&self, message: Message) -> Result<()> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().and_then(|jobs| jobs.send(message).ok()).ok_or_else(closed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread ends once its inbox is closed; a panic there was already reported.
            let _ = thread.join();
        }
    }
}

fn run_verb<T>(
    verb: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    db: &Connection,
    clock: &dyn Clock,
    known: &mut Known,
) -> (Result<T>, bool, bool, u64) {
    let mut tx = Tx::new(db, clock.now(), known);
    // A bug in one verb must not end the thread that serves them all.
    let mut result = std::panic::catch_unwind(AssertUnwindSafe(|| verb(&mut tx)))
        .unwrap_or_else(|_| Err(Error::Broken { message: "a verb panicked".into(), source: None }));
    if result.is_ok()
        && !tx.abandon
        && let Err(error) = tx.flush()
    {
        result = Err(error);
    }
    let commit = result.is_ok() && !tx.abandon;
    (result, commit, tx.woke && commit, if commit { tx.last_change } else { 0 })
}

fn closed() -> Error {
    Error::unavailable("the database writer has ended")
}

struct State {
    db: Connection,
    /// Waits for the disk; none where the store promises nothing against power failures.
    syncer: Option<Syncer>,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
    signals: Arc<Signals>,
    known: Known,
    /// SQLite's count of other connections' commits.
    seen: i64,
}

impl State {
    fn serve(&mut self, inbox: &mpsc::Receiver<Message>) {
        while let Some(first) = receive(inbox) {
            let mut jobs = Vec::new();
            let mut look = false;
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Job(job) => jobs.push(job),
                    Message::LookAround => look = true,
                }
                next = if jobs.len() < GROUP { inbox.try_recv().ok() } else { None };
            }
            if !jobs.is_empty() {
                self.commit(jobs);
            }
            if look {
                self.look_around();
            }
        }
    }

    fn commit(&mut self, jobs: Vec<Job>) {
        if let Err(error) = self.begin() {
            for job in jobs {
                ((job.run)(Chance::Refuse(copy(&error))).answer)(Ok(()));
            }
            return;
        }
        let alone = jobs.len() == 1;
        let ran: Vec<(Durability, Ran)> =
            jobs.into_iter().map(|job| (job.durability, self.run(job, alone))).collect();
        let committed = self.end(ran.iter().any(|(_, ran)| ran.commit));
        if committed.is_ok() {
            let last_change = ran.iter().map(|(_, ran)| ran.last_change).max();
            self.signals.raise(ran.iter().any(|(_, ran)| ran.woke), last_change.unwrap_or(0));
        }
        let mut waiting = Vec::new();
        for (durability, ran) in ran {
            match (&committed, &self.syncer) {
                (Ok(()), Some(_)) if ran.commit && durability == Durability::Durable => {
                    waiting.push(ran.answer);
                }
                _ => (ran.answer)(committed.as_ref().copied().map_err(copy)),
            }
        }
        if let Some(syncer) = self.syncer.as_ref().filter(|_| !waiting.is_empty()) {
            syncer.answer_when_on_disk(waiting);
        }
    }

    fn begin(&mut self) -> Result<()> {
        patiently(self.busy_timeout, || {
            self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
        })
    }

    /// Runs one verb, in a savepoint of its own unless it is the only one.
    fn run(&mut self, job: Job, alone: bool) -> Ran {
        if self.db.is_autocommit() {
            // A verb before it lost the transaction: nothing of it may be committed alone.
            return (job.run)(Chance::Refuse(rolled_back()));
        }
        if !alone && let Err(error) = self.statement("SAVEPOINT verb") {
            return (job.run)(Chance::Refuse(error));
        }
        let ran = (job.run)(Chance::Run(&self.db, self.clock.as_ref(), &mut self.known));
        if !alone && !self.db.is_autocommit() {
            let kept = if ran.commit { Ok(()) } else { self.statement("ROLLBACK TO verb") };
            if let Err(error) = kept.and_then(|()| self.statement("RELEASE verb")) {
                tracing::error!(%error, "a savepoint cannot be ended: the transaction is given up");
                let _ = self.db.execute_batch("ROLLBACK");
            }
        }
        ran
    }

    fn statement(&self, sql: &str) -> Result<()> {
        self.db.prepare_cached(sql).or_translate()?.execute([]).or_translate()?;
        Ok(())
    }

    fn end(&self, commit: bool) -> Result<()> {
        // A full disk or an I/O error may have ended the transaction already.
        if self.db.is_autocommit() {
            return Err(rolled_back());
        }
        let sql = if commit { "COMMIT" } else { "ROLLBACK" };
        let ended = self.db.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        if let Err(error) = ended {
            if !self.db.is_autocommit() {
                let _ = self.db.execute_batch("ROLLBACK");
            }
            return Err(translate(error));
        }
        Ok(())
    }

    fn data_version(&self) -> Result<i64> {
        self.db
            .prepare_cached("PRAGMA data_version")
            .or_translate()?
            .query_row([], |row| row.get(0))
            .or_translate()
    }

    fn last_change(&self) -> Result<u64> {
        self.db
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM longshore_change")
            .or_translate()?
            .query_row([], |row| row.get(0))
            .or_translate()
    }

    fn look_around(&mut self) {
        if let Ok(version) = self.data_version()
            && version != self.seen
        {
            self.seen = version;
            self.signals.raise(true, self.last_change().unwrap_or(0));
        }
    }
}

fn rolled_back() -> Error {
    Error::unavailable("SQLite rolled the transaction back")
}

/// The next message. Looks for a moment before it sleeps: a send is followed by a claim, a claim by
/// a finish, and waking a sleeping thread takes longer than any of them.
fn receive(inbox: &mpsc::Receiver<Message>) -> Option<Message> {
    let until = Instant::now() + LINGER;
    loop {
        match inbox.try_recv() {
            Ok(message) => return Some(message),
            Err(mpsc::TryRecvError::Disconnected) => return None,
            Err(mpsc::TryRecvError::Empty) if Instant::now() < until => std::thread::yield_now(),
            Err(mpsc::TryRecvError::Empty) => return inbox.recv().ok(),
        }
    }
}

/// The same news for each caller of a group.
pub(crate) fn copy(error: &Error) -> Error {
    match error {
        Error::DiskFull { .. } => Error::DiskFull { source: None },
        Error::Broken { message, .. } => Error::Broken { message: message.clone(), source: None },
        other => Error::Unavailable { message: other.to_string(), source: None },
    }
}
