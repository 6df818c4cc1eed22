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

use crate::access::{remove_halves, write_whole};
use crate::launch::Submitted;
use crate::secure::Identity;

const FILE: &str = "server.json";

/// What is kept. Mode 0600: it holds the key and the secret.
#[derive(Serialize, Deserialize)]
pub(super) struct State {
    pub(super) identity: Identity,
    secret: Vec<u8>,
    /// Where it listened last: workers look there first.
    pub(super) port: u16,
    /// The session of its last life, and the one before if that was not adopted yet.
    pub(super) sessions: Vec<SessionId>,
    /// Jobs of workers that it has asked for.
    #[serde(default)]
    pub(super) jobs: BTreeMap<u64, Submitted>,
    /// Workers that it knew last, by their identities.
    #[serde(default)]
    pub(super) workers: BTreeSet<String>,
    /// Adopted claims under the fences that workers know, which may be those of an earlier life.
    #[serde(default)]
    told: BTreeMap<UnitId, Told>,
}

/// A claim that was to be adopted.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Told {
    /// The fence that its worker knows.
    told: u64,
    /// The fence that it had before; adopted, it has one more.
    held: u64,
}

impl State {
    /// What an earlier life left in `folder`, or a new beginning.
    pub(super) fn load(folder: &Path) -> io::Result<Self> {
        remove_halves(&folder.join(FILE));
        match std::fs::read(folder.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::begin(),
            Err(error) => Err(error),
        }
    }

    fn begin() -> io::Result<Self> {
        let identity = Identity::generate().map_err(io::Error::other)?;
        // Two random ids hold 244 random bits between them.
        let secret = [SessionId::new(), SessionId::new()].map(|id| *id.as_bytes()).concat();
        Ok(Self {
            identity,
            secret,
            port: 0,
            sessions: Vec::new(),
            jobs: BTreeMap::new(),
            workers: BTreeSet::new(),
            told: BTreeMap::new(),
        })
    }

    /// Notes the jobs; whether there are others than before.
    pub(super) fn keep_jobs(&mut self, jobs: &BTreeMap<u64, Submitted>) -> bool {
        if self.jobs == *jobs {
            return false;
        }
        self.jobs.clone_from(jobs);
        true
    }

    /// Notes the workers; whether there are others than before.
    pub(super) fn keep_workers(&mut self, workers: BTreeSet<String>) -> bool {
        let changed = self.workers != workers;
        self.workers = workers;
        changed
    }

    /// Notes claims that are to be adopted. Returns them as workers know them: a worker that has not
    /// been back since the life before last knows an older fence than the store.
    pub(super) fn keep_told(&mut self, held: &[Lease]) -> Vec<Lease> {
        let before = std::mem::take(&mut self.told);
        for lease in held {
            let noted = before.get(&lease.unit).filter(|noted| {
                // Not adopted after all, or adopted and never let go since.
                noted.held == lease.fence || noted.held + 1 == lease.fence
            });
            let told = noted.map_or(lease.fence, |noted| noted.told);
            self.told.insert(lease.unit, Told { told, held: lease.fence });
        }
        self.told.iter().map(|(unit, noted)| Lease { unit: *unit, fence: noted.told }).collect()
    }

    pub(super) fn save(&self, folder: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        write_whole(&folder.join(FILE), &bytes)
    }

    pub(super) fn secret(&self) -> SecretSlice<u8> {
        self.secret.clone().into()
    }
}

/// Whether two secrets are the same, in a time that says nothing about them.
pub(super) fn same(known: &SecretSlice<u8>, given: &[u8]) -> bool {
    use subtle::ConstantTimeEq;
    known.expose_secret().ct_eq(given).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_remembered_as_its_worker_knows_it_over_many_lives() {
        let mut state = State::begin().unwrap();
        let unit = UnitId::new();
        let lease = |fence| Lease { unit, fence };
        assert_eq!(state.keep_told(&[lease(3)]), [lease(3)]);
        // This life ended before it had adopted anything, the next one after.
        assert_eq!(state.keep_told(&[lease(3)]), [lease(3)]);
        assert_eq!(state.keep_told(&[lease(4)]), [lease(3)]);
        assert_eq!(state.keep_told(&[lease(5)]), [lease(3)]);
        // It was let go and claimed again: whoever holds it now was told so.
        assert_eq!(state.keep_told(&[lease(8)]), [lease(8)]);
        assert_eq!(state.keep_told(&[]), []);
        assert_eq!(state.keep_told(&[lease(9)]), [lease(9)]);
    }
}
