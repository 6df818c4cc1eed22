//! Kinds of workers that a pool launches: base system, size of a worker, options and number.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore::HumanDuration;
use longshore_trusted_path::write_private;
use serde::{Deserialize, Serialize};

use super::scaler::PoolSize;
use super::status_snapshot::LauncherStatus;
use crate::access::remove_partial_writes;
use crate::scheduler::WorkerEntry;
use crate::system::BaseSystem;
use crate::worker::interrupts_after;

/// The allocation that a pool is started with.
pub const DEFAULT_ALLOCATION: &str = "default";

const FILE: &str = "allocations.json";

/// Workers of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Its name in the pool.
    pub name: String,
    /// What starts its workers.
    pub base: BaseSystem,
    /// Minimum number of workers.
    pub min: u32,
    /// Maximum number of workers.
    pub max: u32,
    /// Threads of each worker.
    pub threads: u32,
    /// Named resources of each worker.
    pub resources: BTreeMap<String, u32>,
    /// Lifetime of each worker.
    pub time: Option<HumanDuration>,
    /// A worker above `min` is released after this long without a script.
    pub idle: HumanDuration,
    /// The scripts of a released worker may run on for this long.
    pub drain: HumanDuration,
    /// Options for the base system.
    pub options: Vec<String>,
    /// No workers are launched.
    pub paused: bool,
}

impl Allocation {
    pub(crate) fn size(&self) -> PoolSize {
        let (idle, drain) = (self.idle.0, self.drain.0);
        PoolSize { min: self.min, max: self.max.max(self.min), idle, drain }
    }

    /// A worker of it, at the start of its life.
    pub(crate) fn worker(&self) -> WorkerEntry {
        let mut worker = WorkerEntry::new("", self.threads, self.resources.clone());
        worker.interrupts_at = self.time.map(|time| interrupts_after(time.0));
        worker
    }
}

/// An allocation of a running pool.
#[derive(Debug, Clone)]
pub struct AllocationEntry {
    /// Its description.
    pub allocation: Allocation,
    /// The status of its launcher.
    pub status: Arc<LauncherStatus>,
    /// It is removed when its workers have left.
    pub is_leaving: bool,
}

/// The allocations of a pool, changed by clients and executed by the launchers. Kept in a file, but for the size and the
/// options of the default one: each start of the server names these.
#[derive(Debug)]
pub struct AllocationTable {
    file: PathBuf,
    entries: Mutex<Vec<AllocationEntry>>,
}

/// What the file has of an entry.
#[derive(Serialize, Deserialize)]
struct AllocationRecord {
    #[serde(flatten)]
    allocation: Allocation,
    is_leaving: bool,
}

impl AllocationTable {
    /// Reads the table in `folder`; `first` is the default allocation.
    pub(crate) fn load(folder: &Path, first: Allocation) -> io::Result<Self> {
        let file = folder.join(FILE);
        remove_partial_writes(&file);
        let mut records: Vec<AllocationRecord> = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let of_before = records.iter().position(|record| record.allocation.name == first.name);
        let paused = of_before.is_some_and(|at| records.remove(at).allocation.paused);
        records.insert(0, AllocationRecord { allocation: Allocation { paused, ..first }, is_leaving: false });
        let entries = records.into_iter().map(|AllocationRecord { allocation, is_leaving }| {
            let status = LauncherStatus::new(allocation.size());
            AllocationEntry { allocation, status, is_leaving }
        });
        Ok(Self { file, entries: Mutex::new(entries.collect()) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AllocationEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All allocations; the default one is the first.
    pub fn entries(&self) -> Vec<AllocationEntry> {
        self.lock().clone()
    }

    /// Adds an allocation.
    pub(crate) fn add(&self, allocation: Allocation) -> Result<(), String> {
        self.change(|entries| {
            if entries.iter().any(|entry| entry.allocation.name == allocation.name) {
                return Err(format!("there is an allocation `{}` already", allocation.name));
            }
            let status = LauncherStatus::new(allocation.size());
            entries.push(AllocationEntry { allocation, status, is_leaving: false });
            Ok(())
        })
    }

    /// Launches no more workers of this allocation, or does so again.
    pub(crate) fn set_paused(&self, name: &str, paused: bool) -> Result<(), String> {
        self.change_one(name, |entry| entry.allocation.paused = paused)
    }

    /// Changes the number of its workers.
    pub(crate) fn resize(&self, name: &str, min: u32, max: u32, drain: Duration) -> Result<(), String> {
        if self.entries().iter().any(|entry| entry.allocation.name == name && entry.is_leaving) {
            return Err(format!("allocation `{name}` is being removed"));
        }
        self.change_one(name, |entry| {
            let drain = HumanDuration(drain);
            (entry.allocation.min, entry.allocation.max, entry.allocation.drain) = (min, max, drain);
            entry.status.set_size(entry.allocation.size());
        })
    }

    /// Releases its workers; then it is removed.
    pub(crate) fn begin_removal(&self, name: &str, drain: Duration) -> Result<(), String> {
        if name == DEFAULT_ALLOCATION {
            return Err(
                "the allocation that the pool was started with stays; `dispatch scale 0` empties it".into()
            );
        }
        self.resize(name, 0, 0, drain)?;
        self.change_one(name, |entry| entry.is_leaving = true)
    }

    /// Removes an allocation without workers.
    pub(crate) fn finish_removal(&self, name: &str) {
        let removed = self.change(|entries| {
            entries.retain(|entry| entry.allocation.name != name);
            Ok(())
        });
        if let Err(error) = removed {
            tracing::warn!(error, allocation = name, "removing an allocation failed");
        }
    }

    fn change_one(&self, name: &str, change: impl FnOnce(&mut AllocationEntry)) -> Result<(), String> {
        self.change(|entries| {
            let names: Vec<String> = entries.iter().map(|entry| entry.allocation.name.clone()).collect();
            let entry = entries.iter_mut().find(|entry| entry.allocation.name == name);
            let unknown = || format!("there is no allocation `{name}`; there are {}", names.join(", "));
            change(entry.ok_or_else(unknown)?);
            Ok(())
        })
    }

    /// Changes the entries, if the change could be written down.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<AllocationEntry>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut entries = self.lock();
        let mut changed = entries.clone();
        change(&mut changed)?;
        let records: Vec<AllocationRecord> = changed
            .iter()
            .map(|entry| AllocationRecord {
                allocation: entry.allocation.clone(),
                is_leaving: entry.is_leaving,
            })
            .collect();
        let written = serde_json::to_vec(&records).map_err(io::Error::other);
        let written = written.and_then(|bytes| write_private(&self.file, &bytes));
        written.map_err(|error| format!("cannot write {}: {error}", self.file.display()))?;
        *entries = changed;
        Ok(())
    }
}
