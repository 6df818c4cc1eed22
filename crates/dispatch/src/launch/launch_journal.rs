//! Journal of launches, written before the jobs are submitted. If the server is killed before it
//! has received a job's id, the next one finds the job by its name.
//!
//! A launch number is never used twice, because a worker of an earlier launch may still connect
//! with it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore::SessionId;
use longshore_trusted_path::write_private;
use serde::{Deserialize, Serialize};

use super::allocation::DEFAULT_ALLOCATION;
use crate::access::remove_partial_writes;

const FILE: &str = "launches.json";

/// The journal of a pool, shared by its launchers.
#[derive(Debug, Clone)]
pub(crate) struct SharedJournal(Arc<Mutex<LaunchJournal>>);

impl SharedJournal {
    /// Reads the journal in `folder`, or begins a new one.
    pub(crate) fn load(folder: &Path) -> io::Result<Self> {
        LaunchJournal::load(folder).map(|journal| Self(Arc::new(Mutex::new(journal))))
    }

    /// A journal without a file.
    pub(super) fn in_memory() -> Self {
        Self(Arc::new(Mutex::new(LaunchJournal::in_memory())))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LaunchJournal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes the numbers up to this one.
    pub(super) fn skip_to(&self, number: u64) {
        self.lock().skip_to(number);
    }
}

/// The journal of a pool.
#[derive(Debug, Clone)]
pub(super) struct LaunchJournal {
    file: Option<PathBuf>,
    record: JournalRecord,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct JournalRecord {
    /// Distinguishes this pool's jobs from those of other pools.
    pool: String,
    /// The last reserved launch numbers of the last allocation that launched workers.
    from: u64,
    to: u64,
    /// The last reserved launch numbers of each allocation.
    #[serde(default)]
    reserved: BTreeMap<String, (u64, u64)>,
}

impl LaunchJournal {
    /// A journal without a file.
    pub(super) fn in_memory() -> Self {
        // The end of the id is random. Its beginning is the time, which pools may share.
        let id = SessionId::new().to_string();
        let pool = id.get(id.len().saturating_sub(6)..).unwrap_or_default().to_owned();
        Self { file: None, record: JournalRecord { pool, from: 1, to: 0, reserved: BTreeMap::new() } }
    }

    /// Reads the journal in `folder`, or begins a new one.
    fn load(folder: &Path) -> io::Result<Self> {
        let file = folder.join(FILE);
        remove_partial_writes(&file);
        let mut record: JournalRecord = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::in_memory().record,
            Err(error) => return Err(error),
        };
        if record.reserved.is_empty() {
            // Written by a server with one allocation only.
            record.reserved.insert(DEFAULT_ALLOCATION.to_owned(), (record.from, record.to));
        }
        Ok(Self { file: Some(file), record })
    }

    /// The last reserved launch numbers of an allocation.
    pub(super) fn last_numbers(&self, allocation: &str) -> std::ops::RangeInclusive<u64> {
        let (from, to) = self.record.reserved.get(allocation).copied().unwrap_or((1, 0));
        from..=to
    }

    /// Reserves the next `count` launch numbers for an allocation.
    pub(super) fn reserve(
        &mut self,
        allocation: &str,
        count: u32,
    ) -> io::Result<std::ops::RangeInclusive<u64>> {
        let (from, to) = (self.record.to + 1, self.record.to + u64::from(count));
        let mut record = JournalRecord { from, to, ..self.record.clone() };
        record.reserved.insert(allocation.to_owned(), (from, to));
        if let Some(file) = &self.file {
            write_private(file, &serde_json::to_vec(&record).map_err(io::Error::other)?)?;
        }
        self.record = record;
        Ok(from..=to)
    }

    /// Excludes the numbers up to this one.
    pub(super) fn skip_to(&mut self, number: u64) {
        if number > self.record.to {
            (self.record.from, self.record.to) = (number + 1, number);
        }
    }

    /// Job name of a launch. PBS truncates it to fifteen characters, which leaves the number.
    pub(super) fn job_name(&self, number: u64) -> String {
        format!("longshore-{number:04}-{}", self.record.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_twice_over_many_lives() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = LaunchJournal::load(folder.path()).unwrap();
        assert_eq!(first.reserve("a", 3).unwrap(), 1..=3);
        let mut second = LaunchJournal::load(folder.path()).unwrap();
        assert_eq!((second.last_numbers("a"), second.job_name(2)), (1..=3, first.job_name(2)));
        assert_eq!(second.reserve("b", 1).unwrap(), 4..=4);
        assert_eq!((second.last_numbers("a"), second.last_numbers("b")), (1..=3, 4..=4));
        second.skip_to(9);
        second.skip_to(5);
        assert_eq!(second.reserve("a", 2).unwrap(), 10..=11);
    }

    #[test]
    fn a_journal_of_one_allocation_is_the_default_ones() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), r#"{"pool":"a1b2c3","from":4,"to":5}"#).unwrap();
        let journal = LaunchJournal::load(folder.path()).unwrap();
        assert_eq!(journal.last_numbers(DEFAULT_ALLOCATION), 4..=5);
    }

    #[test]
    fn names_are_a_pools_own() {
        assert_ne!(LaunchJournal::in_memory().job_name(1), LaunchJournal::in_memory().job_name(1));
    }
}
