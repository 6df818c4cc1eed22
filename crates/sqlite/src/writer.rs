//! The process' one writer: a thread that commits whatever has gathered in one transaction.
//!
//! While a commit is under way, further verbs gather; the next commit takes them all. No timer
//! delays a lone one. Each verb has a savepoint of its own: one that fails takes nothing of its
//! neighbours with it. What shows at COMMIT alone (an effect may break a deferred foreign key) is
//! nobody's savepoint to undo: then each verb of the group runs again in a transaction of its own.
//!
//! Commits themselves do not wait for the disk: verbs that must survive a power failure are
//! answered by the [`Syncer`] once the log is on disk, while the writer goes on. So claims and
//! beats never wait behind an fsync, and one fsync serves every caller that was waiting.

mod verb;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longshore_core::{Clock, Error, Result};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::watch;

use crate::busy::patiently;
use crate::checkpoint;
use crate::error::{Translate, translate};
use crate::known::Known;
use crate::permits::Hints;
use crate::sync::Syncer;
use crate::tx::Tx;
pub(crate) use verb::Verb;
use verb::{Call, Ran};

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
    /// Who waits for a permit.
    pub(crate) hints: Hints,
}

impl Signals {
    pub(crate) fn new() -> Self {
        let (ready, changed) = (watch::Sender::new(1), watch::Sender::new(1));
        Self { ready, changed, last_change: AtomicU64::new(0), hints: Hints::default() }
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
    verb: Box<dyn Verb>,
}

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

    /// Runs a verb in the next transaction and waits for its commit. It may run more than once;
    /// what counts is the run that was committed.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        durability: Durability,
        verb: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (call, answered) = Call::new(verb);
        self.post(Message::Job(Job { durability, verb: Box::new(call) }))?;
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
        let mut patience = Patience::default();
        while let Some(first) = patience.receive(inbox) {
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

    fn commit(&mut self, mut jobs: Vec<Job>) {
        if let Err(error) = self.begin() {
            for mut job in jobs {
                job.verb.refuse(copy(&error));
                job.verb.answer(Ok(()));
            }
            return;
        }
        let alone = jobs.len() == 1;
        let ran: Vec<Ran> = jobs.iter_mut().map(|job| self.run(job, alone)).collect();
        let committed =
            self.add_sums(&ran).and_then(|()| self.end(ran.iter().any(|ran| ran.commit)));
        if !alone && matches!(committed, Err(Error::Invalid(_))) {
            // SQLite does not say whose fault it is.
            for job in jobs {
                self.commit(vec![job]);
            }
            return;
        }
        self.answer(jobs, &ran, &committed);
    }

    /// Adds what all verbs of a commit have for the sums of batches: once per sum, and not once per
    /// verb.
    fn add_sums(&self, ran: &[Ran]) -> Result<()> {
        if self.db.is_autocommit() {
            return Err(rolled_back());
        }
        let added = checkpoint::add(&self.db, ran.iter().flat_map(|ran| &ran.sums));
        if added.is_err() {
            let _ = self.end(false);
        }
        added
    }

    /// Tells the callers, and this process' waiters.
    fn answer(&self, jobs: Vec<Job>, ran: &[Ran], committed: &Result<()>) {
        if committed.is_ok() {
            let last_change = ran.iter().map(|ran| ran.last_change).max();
            self.signals.raise(ran.iter().any(|ran| ran.woke), last_change.unwrap_or(0));
            self.signals.hints.tell(ran.iter().flat_map(|ran| &ran.told));
        }
        let mut waiting = Vec::new();
        for (job, ran) in jobs.into_iter().zip(ran) {
            match (committed, &self.syncer) {
                (Ok(()), Some(_)) if ran.commit && job.durability == Durability::Durable => {
                    waiting.push(job.verb);
                }
                _ => job.verb.answer(committed.as_ref().copied().map_err(copy)),
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
    fn run(&mut self, job: &mut Job, alone: bool) -> Ran {
        // A verb before it may have lost the transaction: nothing of it may be committed alone.
        let lost = self.db.is_autocommit().then(rolled_back);
        let begun = lost.map_or_else(|| self.begin_verb(alone), Err);
        if let Err(error) = begun {
            job.verb.refuse(error);
            return Ran::default();
        }
        let ran = job.verb.run(&self.db, self.clock.as_ref(), &mut self.known);
        if !alone && !self.db.is_autocommit() {
            self.end_verb(ran.commit);
        }
        ran
    }

    fn begin_verb(&self, alone: bool) -> Result<()> {
        if alone { Ok(()) } else { self.statement("SAVEPOINT verb") }
    }

    fn end_verb(&self, commit: bool) {
        let kept = if commit { Ok(()) } else { self.statement("ROLLBACK TO verb") };
        if let Err(error) = kept.and_then(|()| self.statement("RELEASE verb")) {
            tracing::error!(%error, "a savepoint cannot be ended: the transaction is given up");
            let _ = self.db.execute_batch("ROLLBACK");
        }
    }

    fn statement(&self, sql: &str) -> Result<()> {
        self.db.prepare_cached(sql).or_translate()?.execute([]).or_translate()?;
        Ok(())
    }

    /// Ends the transaction. [`Error::Invalid`] if what was written may not be committed.
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
            return Err(match error.sqlite_error_code() {
                Some(ErrorCode::ConstraintViolation) => unfit(&error),
                _ => translate(error),
            });
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
            if let Err(error) = self.signals.hints.look(&self.db) {
                tracing::warn!(%error, "who may have a permit now could not be read");
            }
        }
    }
}

fn unfit(error: &rusqlite::Error) -> Error {
    Error::Invalid(format!("what was written cannot be committed: {error}"))
}

fn rolled_back() -> Error {
    Error::unavailable("SQLite rolled the transaction back")
}

/// How the writer waits for messages. Looks for a moment before it sleeps: a send is followed by a
/// claim, a claim by a finish, and waking a sleeping thread takes longer than any of them. Where
/// nothing came in such a moment twice in a row it sleeps at once, until something comes as quickly:
/// looking would cost more than all the work of a store that is written to now and then.
#[derive(Default)]
struct Patience {
    in_vain: u32,
}

impl Patience {
    fn receive(&mut self, inbox: &mpsc::Receiver<Message>) -> Option<Message> {
        let began = Instant::now();
        let looks = self.in_vain < 2;
        let message = loop {
            match inbox.try_recv() {
                Ok(message) => break Some(message),
                Err(mpsc::TryRecvError::Disconnected) => return None,
                Err(mpsc::TryRecvError::Empty) if looks && began.elapsed() < LINGER => {
                    std::thread::yield_now();
                }
                Err(mpsc::TryRecvError::Empty) => break inbox.recv().ok(),
            }
        };
        let quick = began.elapsed() < LINGER;
        self.in_vain = if quick { 0 } else { self.in_vain.saturating_add(1) };
        message
    }
}

/// The same news for each caller of a group.
pub(crate) fn copy(error: &Error) -> Error {
    match error {
        Error::DiskFull { .. } => Error::DiskFull { source: None },
        Error::Broken { message, .. } => Error::Broken { message: message.clone(), source: None },
        Error::Invalid(message) => Error::Invalid(message.clone()),
        other => Error::Unavailable { message: other.to_string(), source: None },
    }
}
