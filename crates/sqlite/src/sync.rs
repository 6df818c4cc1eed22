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

use crate::writer::{Answer, copy};

/// The way to the thread that waits for the disk.
pub(crate) struct Syncer {
    waiting: Option<mpsc::Sender<Vec<Answer>>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread for the log of `database`.
    pub(crate) fn start(database: &Path) -> Result<Self> {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let (waiting, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("longshore-sync".to_owned())
            .spawn(move || serve(&inbox, PathBuf::from(log)))
            .map_err(unavailable)?;
        Ok(Self { waiting: Some(waiting), thread: Some(thread) })
    }

    /// Answers callers once everything committed before this call is on disk.
    pub(crate) fn answer_when_on_disk(&self, answers: Vec<Answer>) {
        if let Some(waiting) = &self.waiting {
            // The thread outlives every sender; were it gone, callers would see a closed channel.
            let _ = waiting.send(answers);
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

fn serve(inbox: &mpsc::Receiver<Vec<Answer>>, path: PathBuf) {
    let mut log = None;
    while let Ok(first) = inbox.recv() {
        // Whatever gathered during the last sync is served by this one.
        let all: Vec<Answer> = std::iter::once(first).chain(inbox.try_iter()).flatten().collect();
        let synced = sync(&mut log, &path);
        for answer in all {
            answer(synced.as_ref().copied().map_err(copy));
        }
    }
}

fn sync(log: &mut Option<File>, path: &Path) -> Result<()> {
    let file = match log.take() {
        Some(file) => file,
        None => File::open(path).map_err(unavailable)?,
    };
    // After a failed sync the file is opened anew, and the callers know that they must ask again.
    file.sync_data().map_err(unavailable)?;
    *log = Some(file);
    Ok(())
}

fn unavailable(error: std::io::Error) -> Error {
    Error::Unavailable {
        message: "the database's log cannot be brought to disk".to_owned(),
        source: Some(Box::new(error)),
    }
}
