//! Wakes processes after commits of other processes, by watching the write-ahead log.
//!
//! A check every half second covers what inotify cannot see (a log that was created again). The
//! check reads SQLite's `data_version`, so commits of this process wake no waiter.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::wal_sync::wal_path;
use crate::writer::Writer;

/// Interval of checks without an inotify event.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after an event, so that a burst of commits causes one check.
const DEBOUNCE: Duration = Duration::from_millis(1);

/// Watches until the writer is gone.
pub(crate) fn start(database: &Path, writer: Weak<Writer>) -> std::io::Result<()> {
    let watcher = WalWatcher { log: wal_path(database), fd: open_inotify() };
    std::thread::Builder::new()
        .name("longshore-watch".to_owned())
        .spawn(move || watcher.run(&writer))
        .map(drop)
}

struct WalWatcher {
    log: PathBuf,
    fd: Option<OwnedFd>,
}

/// Without inotify (its limits are per user) only the periodic check remains.
fn open_inotify() -> Option<OwnedFd> {
    inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()
}

impl WalWatcher {
    fn run(&self, writer: &Weak<Writer>) {
        loop {
            self.add_watch();
            let signalled = self.wait();
            let Some(writer) = writer.upgrade() else { return };
            if writer.check_other_commits().is_err() {
                return;
            }
            drop(writer);
            if signalled {
                std::thread::sleep(DEBOUNCE);
            }
        }
    }

    /// Adding an existing watch is free, and follows the log if its file was created again.
    fn add_watch(&self) {
        if let Some(fd) = &self.fd {
            let _ = inotify::add_watch(fd, &self.log, inotify::WatchFlags::MODIFY);
        }
    }

    fn wait(&self) -> bool {
        let Some(fd) = &self.fd else {
            std::thread::sleep(POLL_INTERVAL);
            return false;
        };
        let limit = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit));
        if !matches!(ready, Ok(1..)) {
            return false;
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(fd, &mut buffer);
        while events.next().is_ok() {}
        true
    }
}
