//! Keeps this process from writing to a former primary.
//!
//! A promotion begins a new timeline. If the former primary comes back and accepts writes, it is still on the old one,
//! so a process that has seen the new one rejects it. The first connection of a process accepts any timeline.

use std::sync::{Arc, Mutex, PoisonError};

use deadpool::managed::{Hook, HookError};
use longshore_postgres_url::{ConnectionManager, OpenConnection};

/// A database cluster, and its newest timeline that this process has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timeline {
    system: i64,
    number: i32,
}

/// Fails on a standby, and where a service does not permit these functions.
const READ: &str = "SELECT (SELECT system_identifier FROM pg_control_system()),
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int";

/// Rejects new connections to a server on an older timeline than an earlier connection's.
pub(crate) fn hook() -> Hook<ConnectionManager> {
    let newest: Arc<Mutex<Option<Timeline>>> = Arc::default();
    Hook::async_fn(move |connection, _| {
        let newest = Arc::clone(&newest);
        Box::pin(async move {
            let Some(current) = read(connection).await else { return Ok(()) };
            let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
            match *newest {
                // Another cluster, as after an upgrade, counts its own timelines.
                Some(seen) if seen.system == current.system && seen.number > current.number => {
                    Err(HookError::message(format!(
                        "the server is a former primary: it is on timeline {}, and timeline {} has begun elsewhere",
                        current.number, seen.number
                    )))
                }
                _ => {
                    *newest = Some(current);
                    Ok(())
                }
            }
        })
    })
}

async fn read(connection: &OpenConnection) -> Option<Timeline> {
    let row = connection.query_opt(READ, &[]).await.ok()??;
    Some(Timeline { system: row.try_get(0).ok()?, number: row.try_get(1).ok()? })
}
