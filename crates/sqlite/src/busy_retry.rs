//! Retries while another process holds a lock.
//!
//! SQLite's own busy handler waits up to 100 ms at a time, so a process that writes seldom would
//! starve beside one that commits without pause; and SQLite does not call it while a file is first
//! switched to a write-ahead log.

use std::time::{Duration, Instant};

use longshore_core::{DoublingDelay, Result};
use rusqlite::ErrorCode;

use crate::error::translate;

/// Pause between attempts: the first, doubling up to the second.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));

/// Retries until `attempt` succeeds, fails for another reason than a lock, or `limit` has passed.
pub(crate) fn retry_while_busy<T>(
    limit: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut pause = DoublingDelay::new(RETRY_PAUSE.0, RETRY_PAUSE.1);
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(pause.advance());
            }
            done => return done.map_err(translate),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}
