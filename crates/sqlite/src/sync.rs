//! Waits for the disk, so that the writer need not.
//!
//! In SQLite's write-ahead log a transaction survives a power failure once its frames are on disk.
//! `synchronous=FULL` waits for that inside COMMIT, with the write lock held. We commit at NORMAL
//! and make the same call, `fdatasync` of the log, on a thread of its own: the promise to callers
//! is the same, but the next transaction runs meanwhile. (A checkpoint in between is no harm: it
//! syncs the log before it copies from it, and the database before the log is used anew.)

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use longshore_core::{Error, Result};
use rusqlite::Connection;

use crate::error::Translate;
use crate::writer::{Verb, copy};

/// The way to the thread that waits for the disk.
pub(crate) struct Syncer {
    waiting: Option<mpsc::Sender<Vec<Box<dyn Verb>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread for the log of `database`.
    pub(crate) fn start(database: &Path) -> Result<Self> {
        let database = database.to_owned();
        let (waiting, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("longshore-sync".to_owned())
            .spawn(move || serve(&inbox, &database))
            .map_err(unavailable)?;
        Ok(Self { waiting: Some(waiting), thread: Some(thread) })
    }

    /// Answers callers once everything committed before this call is on disk.
    pub(crate) fn answer_when_on_disk(&self, verbs: Vec<Box<dyn Verb>>) {
        if let Some(waiting) = &self.waiting {
            // The thread outlives every sender; were it gone, callers would see a closed channel.
            let _ = waiting.send(verbs);
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.waiting.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(inbox: &mpsc::Receiver<Vec<Box<dyn Verb>>>, database: &Path) {
    let mut disk = Disk { database: database.to_owned(), log: None, suspect: false };
    while let Ok(first) = inbox.recv() {
        // Whatever gathered during the last sync is served by this one.
        let all: Vec<_> = std::iter::once(first).chain(inbox.try_iter()).flatten().collect();
        let synced = disk.sync();
        for verb in all {
            verb.answer(synced.as_ref().copied().map_err(copy));
        }
    }
}

struct Disk {
    database: PathBuf,
    log: Option<File>,
    /// A sync failed. The kernel may have dropped the pages and call the next sync a success, so
    /// nothing is confirmed until everything was written anew, into the database itself.
    suspect: bool,
}

impl Disk {
    fn sync(&mut self) -> Result<()> {
        let synced = if self.suspect { self.write_anew() } else { self.sync_log() };
        self.suspect = synced.is_err();
        synced
    }

    fn sync_log(&mut self) -> Result<()> {
        let file = match self.log.take() {
            Some(file) => file,
            None => File::open(log_of(&self.database)).map_err(unavailable)?,
        };
        file.sync_data().map_err(unavailable)?;
        self.log = Some(file);
        Ok(())
    }

    fn write_anew(&mut self) -> Result<()> {
        self.log = None;
        let db = Connection::open(&self.database).or_translate()?;
        db.pragma_update(None, "synchronous", "FULL").or_translate()?;
        let busy: bool =
            db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).or_translate()?;
        if busy {
            Err(Error::unavailable("the database is busy after a disk error"))
        } else {
            Ok(())
        }
    }
}

/// Where SQLite keeps the log of a database.
pub(crate) fn log_of(database: &Path) -> PathBuf {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

fn unavailable(error: std::io::Error) -> Error {
    Error::Unavailable {
        message: "the database's log cannot be brought to disk".to_owned(),
        source: Some(Box::new(error)),
    }
}
