//! A session for calls of no unit: it beats while this process lives, and takes its open calls with
//! it when it does not.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore::session::NewSession;
use longshore::store::Beat;
use longshore::{Error, SessionId, Store};

/// After this long without a beat it counts as dead.
const TTL: Duration = Duration::from_secs(30);

/// Between two beats.
const BEAT: Duration = Duration::from_secs(10);

/// The session, while there is one.
#[derive(Default)]
pub(super) struct Presence {
    session: Mutex<Option<SessionId>>,
}

impl Presence {
    pub(super) fn session(&self) -> Option<SessionId> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session and beats; another one, should it be taken for dead.
    pub(super) async fn keep(&self, store: &dyn Store, label: &str) {
        loop {
            let beaten = match self.session() {
                Some(session) => {
                    let beat = Beat { cpu: longshore::cpu_time(), ..Beat::default() };
                    store.beat(session, beat).await.map(drop)
                }
                None => self.open(store, label).await,
            };
            match beaten {
                Ok(()) => tokio::time::sleep(BEAT).await,
                Err(Error::SessionGone(_)) => self.set(None),
                Err(error) => {
                    tracing::warn!(%error, "no sign of life could be given");
                    tokio::time::sleep(BEAT / 10).await;
                }
            }
        }
    }

    /// Ends the session.
    pub(super) async fn end(&self, store: &dyn Store) -> longshore::Result<()> {
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
        let new = NewSession {
            id: session,
            label: label.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kinds: BTreeMap::new(),
            slots: 0,
            ttl: TTL,
        };
        store.open_session(new).await?;
        self.set(Some(session));
        Ok(())
    }

    fn set(&self, session: Option<SessionId>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }
}
