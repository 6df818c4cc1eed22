//! Syncs the write-ahead log to disk on its own thread, so that the writer does not wait for the
//! disk.
//!
//! A transaction survives a power failure once its frames of the log are on disk.
//! `synchronous=FULL` waits for that inside COMMIT, with the write lock held. We commit at NORMAL
//! and make the same call, `fdatasync` of the log, on another thread: the guarantee to callers is
//! the same, but the next transaction runs meanwhile. (A checkpoint in between does no harm: it
//! syncs the log before it copies from it, and the database before the log is reused.)

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use longshore_core::{Error, Result};
use rusqlite::Connection;

use crate::error::Translate;
use crate::writer::WriteOp;

/// A handle of the thread that syncs the log.
pub(crate) struct WalSyncer {
    waiting: Option<mpsc::Sender<Vec<Box<dyn WriteOp>>>>,
    thread: Option<JoinHandle<()>>,
}

impl WalSyncer {
    /// Starts the thread for the log of `database`.
    pub(crate) fn start(database: &Path) -> Result<Self> {
        let database = database.to_owned();
        let (waiting, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("longshore-sync".to_owned())
            .spawn(move || run(&inbox, &database))
            .map_err(unavailable)?;
        Ok(Self { waiting: Some(waiting), thread: Some(thread) })
    }

    /// Replies to callers once everything committed before this call is on disk.
    pub(crate) fn reply_after_sync(&self, ops: Vec<Box<dyn WriteOp>>) {
        if let Some(waiting) = &self.waiting {
            // The thread outlives every sender; were it gone, callers would see a closed channel.
            let _ = waiting.send(ops);
        }
    }
}

impl Drop for WalSyncer {
    fn drop(&mut self) {
        self.waiting.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(inbox: &mpsc::Receiver<Vec<Box<dyn WriteOp>>>, database: &Path) {
    let mut wal = WalFile { database: database.to_owned(), log: None, failed: false };
    while let Ok(first) = inbox.recv() {
        // One sync serves all operations that were committed during the last one.
        let all: Vec<_> = std::iter::once(first).chain(inbox.try_iter()).flatten().collect();
        let synced = wal.sync();
        for op in all {
            op.reply(synced.as_ref().copied().map_err(Error::copy_for_caller));
        }
    }
}

struct WalFile {
    database: PathBuf,
    log: Option<File>,
    /// A sync failed. The kernel may have dropped the pages and report the next sync as a success,
    /// so nothing is confirmed until everything was written again, into the database itself.
    failed: bool,
}

impl WalFile {
    fn sync(&mut self) -> Result<()> {
        let synced = if self.failed { self.checkpoint_all() } else { self.sync_log() };
        self.failed = synced.is_err();
        synced
    }

    fn sync_log(&mut self) -> Result<()> {
        let file = match self.log.take() {
            Some(file) => file,
            None => File::open(wal_path(&self.database)).map_err(unavailable)?,
        };
        file.sync_data().map_err(unavailable)?;
        self.log = Some(file);
        Ok(())
    }

    fn checkpoint_all(&mut self) -> Result<()> {
        self.log = None;
        let db = Connection::open(&self.database).or_translate()?;
        db.pragma_update(None, "synchronous", "FULL").or_translate()?;
        let busy: bool =
            db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).or_translate()?;
        if busy { Err(Error::unavailable("the database is busy after a disk error")) } else { Ok(()) }
    }
}

/// The path of a database's log.
pub(crate) fn wal_path(database: &Path) -> PathBuf {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

fn unavailable(error: std::io::Error) -> Error {
    Error::Unavailable {
        message: "the database's log cannot be synced to disk".to_owned(),
        source: Some(Box::new(error)),
    }
}
