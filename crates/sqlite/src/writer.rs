//! The process' only writer: a thread that commits all pending operations in one transaction.
//!
//! While a commit is in progress, further operations queue; the next commit takes them all. No
//! timer delays a single one. Each operation has its own savepoint, so a failure affects no other.
//! An error that shows only at COMMIT (an effect may violate a deferred foreign key) cannot be
//! attributed to a savepoint: then each operation of the group runs again in a transaction of its
//! own.
//!
//! Commits do not wait for the disk: the [`WalSyncer`] replies to operations that must survive a
//! power failure once the log is on disk, while the writer continues. So claims and heartbeats
//! never wait for an fsync, and one fsync serves all waiting callers.

mod write_op;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longshore_core::{Clock, Error, Result};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::watch;

use crate::busy_retry::retry_while_busy;
use crate::checkpoint;
use crate::claim_cache::ClaimCache;
use crate::effects;
use crate::error::{Translate, translate};
use crate::maintenance;
use crate::permits::PermitWakeups;
use crate::tx::Tx;
use crate::wal_sync::WalSyncer;
pub(crate) use write_op::WriteOp;
use write_op::{OpReport, PendingOp};

/// What an operation guarantees when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It survives a power failure (as far as the store's `synchronous` guarantees).
    Durable,
    /// It survives this process.
    Relaxed,
}

/// Most operations in one transaction, so that no caller waits too long for a commit.
const MAX_GROUP: usize = 512;

/// How long the writer spins before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(300);

/// Notifies the waiters of this process.
pub(crate) struct Signals {
    /// Counts commits after which units may be claimable.
    pub(crate) ready: watch::Sender<u64>,
    /// Counts commits.
    pub(crate) changed: watch::Sender<u64>,
    /// The last known entry of the change feed.
    pub(crate) last_change: AtomicU64,
    /// Waiters for permits.
    pub(crate) wakeups: PermitWakeups,
}

impl Signals {
    pub(crate) fn new() -> Self {
        let (ready, changed) = (watch::Sender::new(1), watch::Sender::new(1));
        Self { ready, changed, last_change: AtomicU64::new(0), wakeups: PermitWakeups::default() }
    }

    fn raise(&self, wake_workers: bool, last_change: u64) {
        self.last_change.fetch_max(last_change, Ordering::Relaxed);
        self.changed.send_modify(|count| *count += 1);
        if wake_workers {
            self.ready.send_modify(|count| *count += 1);
        }
    }
}

/// A handle of the writer thread.
pub(crate) struct Writer {
    requests: Mutex<Option<mpsc::Sender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Message {
    Write(WriteRequest),
    /// Check whether another process has committed.
    CheckOtherCommits,
}

struct WriteRequest {
    durability: Durability,
    op: Box<dyn WriteOp>,
}

impl Writer {
    /// Starts the thread with its own connection.
    pub(crate) fn start(
        mut db: Connection,
        syncer: Option<WalSyncer>,
        busy_timeout: Duration,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
    ) -> Result<Self> {
        let (requests, inbox) = mpsc::channel();
        db.busy_timeout(Duration::ZERO).or_translate()?;
        effects::install_deadline(&mut db)?;
        db.pragma_update(None, "synchronous", "NORMAL").or_translate()?;
        let mut thread_state = WriterThread {
            db,
            syncer,
            busy_timeout,
            clock,
            signals,
            claim_cache: ClaimCache::default(),
            data_version: 0,
            outbox: false,
        };
        thread_state.data_version = thread_state.data_version()?;
        thread_state.signals.last_change.store(thread_state.last_change()?, Ordering::Relaxed);
        let thread = std::thread::Builder::new()
            .name("longshore-sqlite".to_owned())
            .spawn(move || thread_state.serve(&inbox))
            .map_err(|error| Error::Unavailable {
                message: "the thread of the database writer could not be started".to_owned(),
                source: Some(Box::new(error)),
            })?;
        Ok(Self { requests: Mutex::new(Some(requests)), thread: Mutex::new(Some(thread)) })
    }

    /// Runs an operation in the next transaction and waits for its commit. It may run more than
    /// once; the run that was committed counts.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        durability: Durability,
        op: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (pending, reply) = PendingOp::new(op);
        self.send(Message::Write(WriteRequest { durability, op: Box::new(pending) }))?;
        reply.await.map_err(|_| closed())?
    }

    /// Requests a check whether another process has committed.
    pub(crate) fn check_other_commits(&self) -> Result<()> {
        self.send(Message::CheckOtherCommits)
    }

    fn send(&self, message: Message) -> Result<()> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.as_ref().and_then(|requests| requests.send(message).ok()).ok_or_else(closed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
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

struct WriterThread {
    db: Connection,
    /// Syncs the log; `None` if the store guarantees nothing against power failures.
    syncer: Option<WalSyncer>,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
    signals: Arc<Signals>,
    claim_cache: ClaimCache,
    /// SQLite's counter of other connections' commits.
    data_version: i64,
    /// Dependants are left to the outbox: the writer continues with them between other operations.
    outbox: bool,
}

impl WriterThread {
    fn serve(&mut self, inbox: &mpsc::Receiver<Message>) {
        let mut spin = SpinWait::default();
        loop {
            let received = match self.outbox {
                true => inbox.try_recv(),
                false => spin.receive(inbox).ok_or(mpsc::TryRecvError::Disconnected),
            };
            if matches!(received, Err(mpsc::TryRecvError::Disconnected)) {
                return;
            }
            let mut next = received.ok();
            let mut requests = Vec::new();
            let mut check = false;
            while let Some(message) = next {
                match message {
                    Message::Write(request) => requests.push(request),
                    Message::CheckOtherCommits => check = true,
                }
                next = if requests.len() < MAX_GROUP { inbox.try_recv().ok() } else { None };
            }
            if !requests.is_empty() {
                self.commit(requests);
            }
            if check {
                self.check_other_commits();
            }
            if std::mem::take(&mut self.outbox) {
                // If this fails, maintenance continues.
                let (drain, _) = PendingOp::new(maintenance::drain_dependency_outbox);
                self.commit(vec![WriteRequest { durability: Durability::Relaxed, op: Box::new(drain) }]);
            }
        }
    }

    fn commit(&mut self, mut requests: Vec<WriteRequest>) {
        if let Err(error) = self.begin() {
            for mut request in requests {
                request.op.fail(error.copy_for_caller());
                request.op.reply(Ok(()));
            }
            return;
        }
        let alone = requests.len() == 1;
        let reports: Vec<OpReport> = requests.iter_mut().map(|request| self.run(request, alone)).collect();
        let was_rolled_back = self.db.is_autocommit();
        let committed =
            self.add_sums(&reports).and_then(|()| self.end(reports.iter().any(|report| report.commit)));
        if !alone && (was_rolled_back || matches!(committed, Err(Error::Invalid(_)))) {
            // One operation ended the transaction of all, or SQLite does not tell which one prevents the commit.
            for request in requests {
                self.commit(vec![request]);
            }
            return;
        }
        self.reply(requests, &reports, &committed);
    }

    /// Adds the sums of all operations of a commit: once per sum, and not once per operation.
    fn add_sums(&self, reports: &[OpReport]) -> Result<()> {
        if self.db.is_autocommit() {
            return Err(rolled_back());
        }
        let added = checkpoint::add(&self.db, reports.iter().flat_map(|report| &report.sums));
        if added.is_err() {
            let _ = self.end(false);
        }
        added
    }

    /// Replies to the callers, and notifies the waiters of this process.
    fn reply(&mut self, requests: Vec<WriteRequest>, reports: &[OpReport], committed: &Result<()>) {
        if committed.is_ok() {
            let last_change = reports.iter().map(|report| report.last_change).max();
            self.signals.raise(reports.iter().any(|report| report.wake_workers), last_change.unwrap_or(0));
            self.signals.wakeups.wake(reports.iter().flat_map(|report| &report.woken_permits));
            self.outbox |= reports.iter().any(|report| report.outbox);
        }
        let mut waiting = Vec::new();
        for (request, report) in requests.into_iter().zip(reports) {
            match (committed, &self.syncer) {
                (Ok(()), Some(_)) if report.commit && request.durability == Durability::Durable => {
                    waiting.push(request.op);
                }
                _ => request.op.reply(committed.as_ref().copied().map_err(Error::copy_for_caller)),
            }
        }
        if let Some(syncer) = self.syncer.as_ref().filter(|_| !waiting.is_empty()) {
            syncer.reply_after_sync(waiting);
        }
    }

    fn begin(&mut self) -> Result<()> {
        retry_while_busy(self.busy_timeout, || {
            self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
        })
    }

    /// Runs one operation, in its own savepoint unless it is the only one.
    fn run(&mut self, request: &mut WriteRequest, alone: bool) -> OpReport {
        // An earlier operation may have lost the transaction: then this one must not be committed
        // alone.
        let lost = self.db.is_autocommit().then(rolled_back);
        let begun = lost.map_or_else(|| self.begin_op(alone), Err);
        if let Err(error) = begun {
            request.op.fail(error);
            return OpReport::default();
        }
        let report = request.op.run(&self.db, self.clock.as_ref(), &mut self.claim_cache);
        if !alone && !self.db.is_autocommit() {
            self.end_op(report.commit);
        }
        report
    }

    fn begin_op(&self, alone: bool) -> Result<()> {
        if alone { Ok(()) } else { self.statement("SAVEPOINT operation") }
    }

    fn end_op(&self, commit: bool) {
        let rolled_back = if commit { Ok(()) } else { self.statement("ROLLBACK TO operation") };
        if let Err(error) = rolled_back.and_then(|()| self.statement("RELEASE operation")) {
            tracing::error!(%error, "a savepoint could not be released: rolling back the transaction");
            let _ = self.db.execute_batch("ROLLBACK");
        }
    }

    fn statement(&self, sql: &str) -> Result<()> {
        self.db.prepare_cached(sql).or_translate()?.execute([]).or_translate()?;
        Ok(())
    }

    /// Ends the transaction. [`Error::Invalid`] if a constraint prevents the commit.
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
                Some(ErrorCode::ConstraintViolation) => constraint_error(&error),
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

    fn check_other_commits(&mut self) {
        if let Ok(version) = self.data_version()
            && version != self.data_version
        {
            self.data_version = version;
            self.signals.raise(true, self.last_change().unwrap_or(0));
            if let Err(error) = self.signals.wakeups.wake_after_external_commit(&self.db) {
                tracing::warn!(%error, "the wait queues of permits could not be read");
            }
        }
    }
}

fn constraint_error(error: &rusqlite::Error) -> Error {
    Error::Invalid(format!("a constraint prevents the commit: {error}"))
}

fn rolled_back() -> Error {
    Error::unavailable("SQLite rolled back the transaction")
}

/// How the writer waits for messages. It spins for a moment before it sleeps: a claim follows a
/// send, a finish follows a claim, and waking a sleeping thread takes longer than any of them.
/// After two spins in a row without a message it sleeps at once, until a message comes as quickly:
/// in a store that is written to now and then, spinning would cost more than all the work.
#[derive(Default)]
struct SpinWait {
    misses: u32,
}

impl SpinWait {
    fn receive(&mut self, inbox: &mpsc::Receiver<Message>) -> Option<Message> {
        let began = Instant::now();
        let spins = self.misses < 2;
        let message = loop {
            match inbox.try_recv() {
                Ok(message) => break Some(message),
                Err(mpsc::TryRecvError::Disconnected) => return None,
                Err(mpsc::TryRecvError::Empty) if spins && began.elapsed() < SPIN_TIME => {
                    std::thread::yield_now();
                }
                Err(mpsc::TryRecvError::Empty) => break inbox.recv().ok(),
            }
        };
        let quick = began.elapsed() < SPIN_TIME;
        self.misses = if quick { 0 } else { self.misses.saturating_add(1) };
        message
    }
}
