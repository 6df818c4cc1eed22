//! State file of a server, on a local disk: identity, session, jobs and workers.
//!
//! Which worker has which script changes a thousand times a second. Only scripts that have run for a
//! while are recorded, with the worker's number of threads. So if a worker is missing after a restart, it
//! is known how many scripts it may have started besides.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use longshore::worker_session::Lease;
use longshore::{SessionId, Timestamp, UnitId};
use longshore_trusted_path::write_private;
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Deserializer, Serialize};

use crate::access::remove_partial_writes;
use crate::launch::SubmittedJob;
use crate::scheduler::WorkerRecord;
use crate::tls::ServerIdentity;
use crate::wire::PeerRole;

const FILE: &str = "server.json";

/// Content of the file. Its mode is 0600, because it holds the private key and the secrets.
#[derive(Serialize, Deserialize)]
pub(super) struct ServerState {
    pub(super) identity: ServerIdentity,
    client_secret: Vec<u8>,
    worker_secret: Vec<u8>,
    /// The port of the last process: workers try it first.
    pub(super) port: u16,
    /// The last session, and earlier sessions that were not adopted yet.
    pub(super) sessions: Vec<SessionId>,
    /// Jobs of launched workers, by launch number.
    #[serde(default)]
    pub(super) jobs: BTreeMap<u64, SubmittedJob>,
    /// The last known workers, by uid.
    #[serde(default, deserialize_with = "read_workers")]
    pub(super) workers: BTreeMap<String, WorkerRecord>,
    /// When a client that waited for the pool last found it idle.
    #[serde(default)]
    pub(super) idle_seen_at: Option<Timestamp>,
    /// Adopted leases with the fences that workers know, which may be older than the store's.
    #[serde(default, rename = "told")]
    adopted: BTreeMap<UnitId, AdoptedLease>,
}

/// The fences of an adopted lease.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct AdoptedLease {
    /// The fence that its worker knows.
    #[serde(rename = "told")]
    worker_fence: u64,
    /// The store's fence before the adoption, which increments it.
    #[serde(rename = "held")]
    store_fence: u64,
}

impl ServerState {
    /// Reads the state in `folder`, or creates a new one.
    pub(super) fn load(folder: &Path) -> io::Result<Self> {
        remove_partial_writes(&folder.join(FILE));
        match std::fs::read(folder.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| unreadable(folder, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(),
            Err(error) => Err(error),
        }
    }

    fn create() -> io::Result<Self> {
        let identity = ServerIdentity::generate().map_err(io::Error::other)?;
        // Two random ids have 244 random bits.
        let secret = || [SessionId::new(), SessionId::new()].map(|id| *id.as_bytes()).concat();
        Ok(Self {
            identity,
            client_secret: secret(),
            worker_secret: secret(),
            port: 0,
            sessions: Vec::new(),
            jobs: BTreeMap::new(),
            workers: BTreeMap::new(),
            idle_seen_at: None,
            adopted: BTreeMap::new(),
        })
    }

    /// Updates the jobs. Returns whether they changed.
    pub(super) fn set_jobs(&mut self, jobs: BTreeMap<u64, SubmittedJob>) -> bool {
        let changed = self.jobs != jobs;
        self.jobs = jobs;
        changed
    }

    /// Updates the workers. Returns whether they changed.
    pub(super) fn set_workers(&mut self, workers: BTreeMap<String, WorkerRecord>) -> bool {
        let changed = self.workers != workers;
        self.workers = workers;
        changed
    }

    /// Records leases before their adoption. Returns them with the fences that workers know: a
    /// worker that has not reconnected since the restart before last knows an older fence than the
    /// store.
    pub(super) fn record_worker_leases(&mut self, held: &[Lease]) -> Vec<Lease> {
        let recorded = std::mem::take(&mut self.adopted);
        for lease in held {
            let previous = recorded.get(&lease.unit).filter(|previous| {
                // The adoption did not happen, or it did and the lease was never released since.
                previous.store_fence == lease.fence || previous.store_fence + 1 == lease.fence
            });
            let worker_fence = previous.map_or(lease.fence, |previous| previous.worker_fence);
            self.adopted.insert(lease.unit, AdoptedLease { worker_fence, store_fence: lease.fence });
        }
        self.adopted
            .iter()
            .map(|(unit, previous)| Lease { unit: *unit, fence: previous.worker_fence })
            .collect()
    }

    /// Updates when a waiting client last found the pool idle. Returns whether it changed.
    pub(super) fn set_idle_seen_at(&mut self, at: Timestamp) -> bool {
        self.idle_seen_at.replace(at) != Some(at)
    }

    pub(super) fn save(&self, folder: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        write_private(&folder.join(FILE), &bytes)
    }

    /// The secret that peers of this role must present.
    pub(super) fn secret(&self, role: PeerRole) -> SecretSlice<u8> {
        let secret = match role {
            PeerRole::Client => &self.client_secret,
            PeerRole::Worker => &self.worker_secret,
        };
        secret.clone().into()
    }
}

/// Earlier servers recorded only the workers' uids. These workers end by themselves: they speak an older
/// protocol. Their scripts run again and do not count as lost.
fn read_workers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, WorkerRecord>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum RecordedWorkers {
        Records(BTreeMap<String, WorkerRecord>),
        Uids(BTreeSet<String>),
    }
    Ok(match RecordedWorkers::deserialize(from)? {
        RecordedWorkers::Records(workers) => workers,
        RecordedWorkers::Uids(uids) => uids.into_iter().map(|uid| (uid, WorkerRecord::default())).collect(),
    })
}

fn unreadable(folder: &Path, error: &serde_json::Error) -> io::Error {
    let file = folder.join(FILE);
    io::Error::other(format!(
        "the server's state file {} cannot be read: {error}. It is damaged, or another version of Longshore \
         wrote it: start the pool with that version, or move the file away (workers and jobs of the last \
         server are then not found again; the units are in the store)",
        file.display()
    ))
}

/// Compares two secrets in constant time.
pub(super) fn secrets_match(expected: &SecretSlice<u8>, presented: &[u8]) -> bool {
    use subtle::ConstantTimeEq;
    expected.expose_secret().ct_eq(presented).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_of_the_last_version_are_read_and_an_unreadable_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        ServerState::create().unwrap().save(folder.path()).unwrap();
        let file = folder.path().join(FILE);
        let mut old: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        old["workers"] = serde_json::json!(["w1", "w2"]);
        write_private(&file, old.to_string().as_bytes()).unwrap();
        let workers = ServerState::load(folder.path()).unwrap().workers;
        assert_eq!(workers.keys().collect::<Vec<_>>(), ["w1", "w2"]);
        old["workers"] = serde_json::json!(7);
        write_private(&file, old.to_string().as_bytes()).unwrap();
        let error = ServerState::load(folder.path()).err().unwrap().to_string();
        assert!(error.contains("server.json") && error.contains("another version"), "{error}");
    }

    #[test]
    fn a_claim_is_remembered_as_its_worker_knows_it_over_many_lives() {
        let mut state = ServerState::create().unwrap();
        let unit = UnitId::new();
        let lease = |fence| Lease { unit, fence };
        assert_eq!(state.record_worker_leases(&[lease(3)]), [lease(3)]);
        // This process ended before the adoption, the next one after it.
        assert_eq!(state.record_worker_leases(&[lease(3)]), [lease(3)]);
        assert_eq!(state.record_worker_leases(&[lease(4)]), [lease(3)]);
        assert_eq!(state.record_worker_leases(&[lease(5)]), [lease(3)]);
        // The unit was released and claimed again, so its worker knows the new fence.
        assert_eq!(state.record_worker_leases(&[lease(8)]), [lease(8)]);
        assert_eq!(state.record_worker_leases(&[]), []);
        assert_eq!(state.record_worker_leases(&[lease(9)]), [lease(9)]);
    }
}
