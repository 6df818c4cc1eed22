//! Journal of launches, written before the jobs are submitted. If the server is killed before it
//! has received a job's id, the next one finds the job by its name.
//!
//! A launch number is never used twice, because a worker of an earlier launch may still connect
//! with it.

use std::io;
use std::path::{Path, PathBuf};

use longshore::SessionId;
use longshore_trusted_path::write_private;
use serde::{Deserialize, Serialize};

use crate::access::remove_partial_writes;

const FILE: &str = "launches.json";

/// The journal of a pool.
#[derive(Debug, Clone)]
pub struct LaunchJournal {
    file: Option<PathBuf>,
    record: JournalRecord,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct JournalRecord {
    /// Distinguishes this pool's jobs from those of other pools.
    pool: String,
    /// The last reserved launch numbers.
    from: u64,
    to: u64,
}

impl LaunchJournal {
    /// A journal without a file.
    pub(super) fn in_memory() -> Self {
        // The end of the id is random. Its beginning is the time, which pools may share.
        let id = SessionId::new().to_string();
        let pool = id.get(id.len().saturating_sub(6)..).unwrap_or_default().to_owned();
        Self { file: None, record: JournalRecord { pool, from: 1, to: 0 } }
    }

    /// Reads the journal in `folder`, or begins a new one.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let file = folder.join(FILE);
        remove_partial_writes(&file);
        let record = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::in_memory().record,
            Err(error) => return Err(error),
        };
        Ok(Self { file: Some(file), record })
    }

    /// The last reserved launch numbers.
    pub(super) fn last_numbers(&self) -> std::ops::RangeInclusive<u64> {
        self.record.from..=self.record.to
    }

    /// Reserves the next `count` launch numbers.
    pub(super) fn reserve(&mut self, count: u32) -> io::Result<std::ops::RangeInclusive<u64>> {
        let from = self.record.to + 1;
        let record = JournalRecord { from, to: self.record.to + u64::from(count), ..self.record.clone() };
        if let Some(file) = &self.file {
            write_private(file, &serde_json::to_vec(&record).map_err(io::Error::other)?)?;
        }
        self.record = record;
        Ok(self.last_numbers())
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
        assert_eq!(first.reserve(3).unwrap(), 1..=3);
        let mut second = LaunchJournal::load(folder.path()).unwrap();
        assert_eq!((second.last_numbers(), second.job_name(2)), (1..=3, first.job_name(2)));
        assert_eq!(second.reserve(1).unwrap(), 4..=4);
        second.skip_to(9);
        second.skip_to(5);
        assert_eq!(second.reserve(2).unwrap(), 10..=11);
    }

    #[test]
    fn names_are_a_pools_own() {
        assert_ne!(LaunchJournal::in_memory().job_name(1), LaunchJournal::in_memory().job_name(1));
    }
}
