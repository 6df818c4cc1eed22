//! Keeps this process from using a server that is not the primary.
//!
//! A standby accepts no writes, so its connections are rejected when they are opened. A promotion begins a new timeline.
//! If the former primary comes back and accepts writes, it is still on the old one, so a process that has seen the new
//! one rejects it, and discards the connections that it has there. The first connection of a process accepts any timeline.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool::managed::{Hook, HookError};
use longshore_postgres_url::{ConnectionManager, Timeline};
use tokio_postgres::Client;

/// Fails on a standby, and where a service does not permit these functions.
const READ: &str = "SELECT (SELECT system_identifier FROM pg_control_system()),
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int";

/// Time limit of the check of a new connection. The pool's own limits do not include its hooks.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The newest timeline that any connection of the store has seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewestTimeline(Arc<Mutex<Option<Timeline>>>);

impl NewestTimeline {
    /// A hook that rejects new connections to a standby or a former primary.
    pub(crate) fn on_open(&self) -> Hook<ConnectionManager> {
        let newest = self.clone();
        Hook::<ConnectionManager>::async_fn(move |connection, _| {
            let newest = newest.clone();
            Box::pin(async move {
                connection.timeline = newest.check(connection).await.map_err(HookError::message)?;
                Ok(())
            })
        })
    }

    /// A hook that discards connections to a former primary.
    pub(crate) fn on_reuse(&self) -> Hook<ConnectionManager> {
        let newest = self.clone();
        Hook::<ConnectionManager>::sync_fn(move |connection, _| match connection.timeline {
            Some(timeline) if newest.has_passed(timeline) => {
                Err(HookError::message("the server is a former primary"))
            }
            _ => Ok(()),
        })
    }

    fn has_passed(&self, timeline: Timeline) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|newest| timeline.is_before(newest))
    }

    /// Reads the server's timeline, if it can be read. Fails with the reason if the server is not the primary.
    pub(crate) async fn check(&self, client: &Client) -> Result<Option<Timeline>, String> {
        let current = tokio::time::timeout(CHECK_TIMEOUT, read(client)).await;
        let current = current.map_err(|_| format!("the server did not answer within {CHECK_TIMEOUT:?}"))?;
        let Some(current) = current? else { return Ok(None) };
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *newest {
            Some(newest) if current.is_before(newest) => Err(format!(
                "the server is a former primary: it is on timeline {}, and timeline {} has begun elsewhere",
                current.number, newest.number
            )),
            _ => {
                *newest = Some(current);
                Ok(Some(current))
            }
        }
    }
}

async fn read(client: &Client) -> Result<Option<Timeline>, String> {
    // Unnamed statements, as behind a transaction pooler named ones do not work.
    let error = match client.query_typed(READ, &[]).await {
        Ok(rows) => {
            return Ok(rows.first().map(|row| Timeline { system: row.get(0), number: row.get(1) }));
        }
        Err(error) => error,
    };
    let Some(_) = error.code() else { return Err(format!("the connection to PostgreSQL was lost: {error}")) };
    match client.query_typed("SELECT pg_is_in_recovery()", &[]).await {
        Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => {
            Err("the server is a standby, which accepts no writes; the URL must lead to the primary"
                .to_owned())
        }
        Ok(_) => Ok(None),
        Err(error) => Err(format!("cannot ask whether the server is a standby: {error}")),
    }
}
