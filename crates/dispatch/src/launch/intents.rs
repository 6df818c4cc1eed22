//! What a launcher is about to ask for, noted before it does: a server that is killed before it has
//! heard a job's id finds the job again by its name.
//!
//! No number is given twice, whatever happens: a worker of an earlier life may still come with it.

use std::io;
use std::path::{Path, PathBuf};

use longshore::SessionId;
use serde::{Deserialize, Serialize};

use crate::access::{remove_halves, write_whole};

const FILE: &str = "launches.json";

/// The launches of a pool, as they are noted.
#[derive(Debug, Clone)]
pub struct Intents {
    file: Option<PathBuf>,
    noted: Noted,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noted {
    /// By what the pool's jobs are known among others'.
    pool: String,
    /// The numbers that were last asked for.
    from: u64,
    to: u64,
}

impl Intents {
    /// Notes that are not kept.
    pub(super) fn unkept() -> Self {
        // Its last signs are random; the first are the time, which pools may share.
        let id = SessionId::new().to_string();
        let pool = id.get(id.len().saturating_sub(6)..).unwrap_or_default().to_owned();
        Self { file: None, noted: Noted { pool, from: 1, to: 0 } }
    }

    /// What an earlier life noted in `folder`, or a new beginning.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let file = folder.join(FILE);
        remove_halves(&file);
        let noted = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::unkept().noted,
            Err(error) => return Err(error),
        };
        Ok(Self { file: Some(file), noted })
    }

    /// The numbers that were last asked for.
    pub(super) fn last(&self) -> std::ops::RangeInclusive<u64> {
        self.noted.from..=self.noted.to
    }

    /// Notes that so many are asked for next; their numbers.
    pub(super) fn next(&mut self, count: u32) -> io::Result<std::ops::RangeInclusive<u64>> {
        let from = self.noted.to + 1;
        let noted = Noted { from, to: self.noted.to + u64::from(count), ..self.noted.clone() };
        if let Some(file) = &self.file {
            write_whole(file, &serde_json::to_vec(&noted).map_err(io::Error::other)?)?;
        }
        self.noted = noted;
        Ok(self.last())
    }

    /// No number up to this one is given any more.
    pub(super) fn pass(&mut self, number: u64) {
        if number > self.noted.to {
            (self.noted.from, self.noted.to) = (number + 1, number);
        }
    }

    /// What the job of a launch is called. PBS takes fifteen signs: there only the number is seen.
    pub(super) fn name(&self, number: u64) -> String {
        format!("longshore-{number:04}-{}", self.noted.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_twice_over_many_lives() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Intents::load(folder.path()).unwrap();
        assert_eq!(first.next(3).unwrap(), 1..=3);
        let mut second = Intents::load(folder.path()).unwrap();
        assert_eq!((second.last(), second.name(2)), (1..=3, first.name(2)));
        assert_eq!(second.next(1).unwrap(), 4..=4);
        second.pass(9);
        second.pass(5);
        assert_eq!(second.next(2).unwrap(), 10..=11);
    }

    #[test]
    fn names_are_a_pools_own() {
        assert_ne!(Intents::unkept().name(1), Intents::unkept().name(1));
    }
}
