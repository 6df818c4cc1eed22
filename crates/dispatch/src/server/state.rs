//! What a server keeps between two lives, on a local disk: who it is, and which session it had.
//!
//! Not which worker has which script: that changes a thousand times a second. A note that lags behind
//! would clear just those that were begun last, and among them is the one that brings machines down. So
//! what nobody comes back with counts as lost, if somebody is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use longshore::session::Lease;
use longshore::{SessionId, UnitId};
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Serialize};

use crate::access::{remove_partial_writes, write_atomically};
use crate::launch::SubmittedJob;
use crate::tls::ServerIdentity;

const FILE: &str = "server.json";

/// What is kept. Mode 0600: it holds the key and the secret.
#[derive(Serialize, Deserialize)]
pub(super) struct ServerState {
    pub(super) identity: ServerIdentity,
    secret: Vec<u8>,
    /// Where it listened last: workers look there first.
    pub(super) port: u16,
    /// The session of its last life, and the one before if that was not adopted yet.
    pub(super) sessions: Vec<SessionId>,
    /// Jobs of workers that it has asked for.
    #[serde(default)]
    pub(super) jobs: BTreeMap<u64, SubmittedJob>,
    /// Workers that it knew last, by their identities.
    #[serde(default)]
    pub(super) workers: BTreeSet<String>,
    /// Adopted claims under the fences that workers know, which may be those of an earlier life.
    #[serde(default, rename = "told")]
    adopted: BTreeMap<UnitId, AdoptedLease>,
}

/// A claim that was to be adopted.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct AdoptedLease {
    /// The fence that its worker knows.
    #[serde(rename = "told")]
    worker_fence: u64,
    /// The fence that it had before; adopted, it has one more.
    #[serde(rename = "held")]
    store_fence: u64,
}

impl ServerState {
    /// What an earlier life left in `folder`, or a new beginning.
    pub(super) fn load(folder: &Path) -> io::Result<Self> {
        remove_partial_writes(&folder.join(FILE));
        match std::fs::read(folder.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(),
            Err(error) => Err(error),
        }
    }

    fn create() -> io::Result<Self> {
        let identity = ServerIdentity::generate().map_err(io::Error::other)?;
        // Two random ids hold 244 random bits between them.
        let secret = [SessionId::new(), SessionId::new()].map(|id| *id.as_bytes()).concat();
        Ok(Self {
            identity,
            secret,
            port: 0,
            sessions: Vec::new(),
            jobs: BTreeMap::new(),
            workers: BTreeSet::new(),
            adopted: BTreeMap::new(),
        })
    }

    /// Notes the jobs; whether there are others than before.
    pub(super) fn set_jobs(&mut self, jobs: &BTreeMap<u64, SubmittedJob>) -> bool {
        if self.jobs == *jobs {
            return false;
        }
        self.jobs.clone_from(jobs);
        true
    }

    /// Notes the workers; whether there are others than before.
    pub(super) fn set_workers(&mut self, workers: BTreeSet<String>) -> bool {
        let changed = self.workers != workers;
        self.workers = workers;
        changed
    }

    /// Notes claims that are to be adopted. Returns them as workers know them: a worker that has not
    /// been back since the life before last knows an older fence than the store.
    pub(super) fn record_worker_leases(&mut self, held: &[Lease]) -> Vec<Lease> {
        let recorded = std::mem::take(&mut self.adopted);
        for lease in held {
            let previous = recorded.get(&lease.unit).filter(|previous| {
                // Not adopted after all, or adopted and never let go since.
                previous.store_fence == lease.fence || previous.store_fence + 1 == lease.fence
            });
            let worker_fence = previous.map_or(lease.fence, |previous| previous.worker_fence);
            self.adopted
                .insert(lease.unit, AdoptedLease { worker_fence, store_fence: lease.fence });
        }
        self.adopted
            .iter()
            .map(|(unit, previous)| Lease { unit: *unit, fence: previous.worker_fence })
            .collect()
    }

    pub(super) fn save(&self, folder: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        write_atomically(&folder.join(FILE), &bytes)
    }

    pub(super) fn secret(&self) -> SecretSlice<u8> {
        self.secret.clone().into()
    }
}

/// Whether two secrets are the same, in a time that says nothing about them.
pub(super) fn secrets_match(expected: &SecretSlice<u8>, presented: &[u8]) -> bool {
    use subtle::ConstantTimeEq;
    expected.expose_secret().ct_eq(presented).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_remembered_as_its_worker_knows_it_over_many_lives() {
        let mut state = ServerState::create().unwrap();
        let unit = UnitId::new();
        let lease = |fence| Lease { unit, fence };
        assert_eq!(state.record_worker_leases(&[lease(3)]), [lease(3)]);
        // This life ended before it had adopted anything, the next one after.
        assert_eq!(state.record_worker_leases(&[lease(3)]), [lease(3)]);
        assert_eq!(state.record_worker_leases(&[lease(4)]), [lease(3)]);
        assert_eq!(state.record_worker_leases(&[lease(5)]), [lease(3)]);
        // It was let go and claimed again: whoever holds it now was told so.
        assert_eq!(state.record_worker_leases(&[lease(8)]), [lease(8)]);
        assert_eq!(state.record_worker_leases(&[]), []);
        assert_eq!(state.record_worker_leases(&[lease(9)]), [lease(9)]);
    }
}
