//! Waiting for a lock that another process holds.
//!
//! SQLite's own handler waits up to 100 ms at a time, so a process that asks seldom would starve
//! beside one that commits without pause; and it is not asked at all while a file is first turned
//! to a write-ahead log.

use std::time::{Duration, Instant};

use longshore_core::Result;
use rusqlite::ErrorCode;

use crate::error::translate;

/// Between two tries: from the first, doubling, to the second.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));

/// Tries until it works, fails for another reason than a lock, or `limit` has passed.
pub(crate) fn patiently<T>(
    limit: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T> {
    let (patience, mut pause) = (Instant::now() + limit, PAUSES.0);
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && Instant::now() < patience => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSES.1);
            }
            done => return done.map_err(translate),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}
