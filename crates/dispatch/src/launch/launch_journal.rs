//! What a launcher is about to ask for, noted before it does: a server that is killed before it has
//! heard a job's id finds the job again by its name.
//!
//! No number is given twice, whatever happens: a worker of an earlier life may still come with it.

use std::io;
use std::path::{Path, PathBuf};

use longshore::SessionId;
use serde::{Deserialize, Serialize};

use crate::access::{remove_partial_writes, write_atomically};

const FILE: &str = "launches.json";

/// The launches of a pool, as they are noted.
#[derive(Debug, Clone)]
pub struct LaunchJournal {
    file: Option<PathBuf>,
    record: JournalRecord,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct JournalRecord {
    /// By what the pool's jobs are known among others'.
    pool: String,
    /// The numbers that were last asked for.
    from: u64,
    to: u64,
}

impl LaunchJournal {
    /// Notes that are not kept.
    pub(super) fn in_memory() -> Self {
        // Its last signs are random; the first are the time, which pools may share.
        let id = SessionId::new().to_string();
        let pool = id.get(id.len().saturating_sub(6)..).unwrap_or_default().to_owned();
        Self { file: None, record: JournalRecord { pool, from: 1, to: 0 } }
    }

    /// What an earlier life noted in `folder`, or a new beginning.
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

    /// The numbers that were last asked for.
    pub(super) fn last_numbers(&self) -> std::ops::RangeInclusive<u64> {
        self.record.from..=self.record.to
    }

    /// Notes that so many are asked for next; their numbers.
    pub(super) fn reserve(&mut self, count: u32) -> io::Result<std::ops::RangeInclusive<u64>> {
        let from = self.record.to + 1;
        let record =
            JournalRecord { from, to: self.record.to + u64::from(count), ..self.record.clone() };
        if let Some(file) = &self.file {
            write_atomically(file, &serde_json::to_vec(&record).map_err(io::Error::other)?)?;
        }
        self.record = record;
        Ok(self.last_numbers())
    }

    /// No number up to this one is given any more.
    pub(super) fn skip_to(&mut self, number: u64) {
        if number > self.record.to {
            (self.record.from, self.record.to) = (number + 1, number);
        }
    }

    /// What the job of a launch is called. PBS takes fifteen signs: there only the number is seen.
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
