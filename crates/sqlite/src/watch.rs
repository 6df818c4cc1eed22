//! Wake-up across processes: watches the write-ahead log that every commit is appended to.
//!
//! A look every half second besides covers what the watch cannot see (a log that was made anew).
//! The look itself is SQLite's `data_version`, so our own commits wake nobody.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::sync::log_of;
use crate::writer::Writer;

/// Between two looks without a sign.
const LOOK: Duration = Duration::from_millis(500);
/// After a sign, so that a burst of commits costs one look.
const GATHER: Duration = Duration::from_millis(1);

/// Watches until the writer is gone.
pub(crate) fn start(database: &Path, writer: Weak<Writer>) -> std::io::Result<()> {
    let watch = Watch { log: log_of(database), fd: open() };
    std::thread::Builder::new()
        .name("longshore-watch".to_owned())
        .spawn(move || watch.run(&writer))
        .map(drop)
}

struct Watch {
    log: PathBuf,
    fd: Option<OwnedFd>,
}

/// Without inotify (its limits are per user) the slow look remains.
fn open() -> Option<OwnedFd> {
    inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()
}

impl Watch {
    fn run(&self, writer: &Weak<Writer>) {
        loop {
            self.attach();
            let signalled = self.wait();
            let Some(writer) = writer.upgrade() else { return };
            if writer.look_around().is_err() {
                return;
            }
            drop(writer);
            if signalled {
                std::thread::sleep(GATHER);
            }
        }
    }

    /// Adding a watch that exists is free, and follows the log when its file was made anew.
    fn attach(&self) {
        if let Some(fd) = &self.fd {
            let _ = inotify::add_watch(fd, &self.log, inotify::WatchFlags::MODIFY);
        }
    }

    fn wait(&self) -> bool {
        let Some(fd) = &self.fd else {
            std::thread::sleep(LOOK);
            return false;
        };
        let limit = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
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
