//! A session for calls that belong to no unit. It sends heartbeats while this process lives; when
//! they stop, its open calls become "maybe billed".

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore::store::Heartbeat;
use longshore::worker_session::NewSession;
use longshore::{Error, SessionId, Store};

/// The session is dead after this long without a heartbeat.
const SESSION_TTL: Duration = Duration::from_secs(30);

/// Time between two heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// The session, while it is open.
#[derive(Default)]
pub(super) struct SessionHeartbeat {
    session: Mutex<Option<SessionId>>,
}

impl SessionHeartbeat {
    pub(super) fn session(&self) -> Option<SessionId> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session and sends heartbeats; opens a new one if it was declared dead.
    pub(super) async fn run(&self, store: &dyn Store, label: &str) {
        loop {
            let beaten = match self.session() {
                Some(session) => {
                    let beat = Heartbeat { cpu: longshore::cpu_time(), ..Heartbeat::default() };
                    store.heartbeat(session, beat).await.map(drop)
                }
                None => self.open(store, label).await,
            };
            match beaten {
                Ok(()) => tokio::time::sleep(HEARTBEAT_INTERVAL).await,
                Err(Error::SessionGone(_)) => self.set(None),
                Err(error) => {
                    tracing::warn!(%error, "session heartbeat failed");
                    tokio::time::sleep(HEARTBEAT_INTERVAL / 10).await;
                }
            }
        }
    }

    /// Closes the session.
    pub(super) async fn close(&self, store: &dyn Store) -> longshore::Result<()> {
        match self.session() {
            Some(session) => {
                self.set(None);
                store.close_session(session).await
            }
            None => Ok(()),
        }
    }

    async fn open(&self, store: &dyn Store, label: &str) -> longshore::Result<()> {
        let session = SessionId::new();
        let new = NewSession { slots: 0, ttl: SESSION_TTL, ..NewSession::new(session, label) };
        store.open_session(new).await?;
        self.set(Some(session));
        Ok(())
    }

    fn set(&self, session: Option<SessionId>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }
}
