//! Reads output from the files of all workers in a folder.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore::UnitId;

use super::index_entry::{IndexEntry, OutputChannel, batch_hash};
use super::{DATA_EXTENSION, INDEX_EXTENSION};

/// Selects the runs to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSelector<'a> {
    /// One unit.
    Unit(UnitId),
    /// An array, or one index of it.
    Array(&'a str, Option<u64>),
}

impl RunSelector<'_> {
    fn hash(self) -> u64 {
        match self {
            Self::Unit(_) => 0,
            Self::Array(name, _) => batch_hash(Some(name)),
        }
    }

    fn matches_entry(self, hash: u64, entry: &IndexEntry) -> bool {
        match self {
            Self::Unit(unit) => entry.lease.unit == unit,
            Self::Array(_, index) => entry.batch == hash && (index.is_none() || index == entry.index),
        }
    }
}

/// The output of a unit's last run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutput {
    /// The unit.
    pub unit: UnitId,
    /// Its index in the array.
    pub index: Option<u64>,
    /// Attempt number.
    pub attempt: u32,
    /// Whether the output is complete.
    pub is_complete: bool,
    /// The pieces in order.
    pub pieces: Vec<OutputPiece>,
    file: Arc<PathBuf>,
    fence: u64,
}

/// A piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputPiece {
    /// Output channel.
    pub channel: OutputChannel,
    offset: u64,
    length: u32,
    sum: u32,
}

/// Result of [`find`].
#[derive(Debug, Default)]
pub struct OutputSearch {
    /// The runs, sorted by index and unit.
    pub runs: Vec<RunOutput>,
    /// Number of damaged index entries, of any run.
    pub damaged_entries: u64,
}

/// Result of [`RunOutput::copy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyReport {
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes that are missing or damaged.
    pub lost: u64,
}

/// Searches the indexes of all workers in `folder`.
pub fn find(folder: &Path, which: RunSelector<'_>) -> io::Result<OutputSearch> {
    let hash = which.hash();
    let mut runs: BTreeMap<UnitId, RunOutput> = BTreeMap::new();
    let mut torn = 0;
    for item in std::fs::read_dir(folder)? {
        let path = item?.path();
        if path.extension().is_none_or(|end| end != INDEX_EXTENSION) {
            continue;
        }
        let file = Arc::new(path.with_extension(DATA_EXTENSION));
        torn += read_index(&path, |entry| {
            if which.matches_entry(hash, &entry) {
                add(&mut runs, entry, &file);
            }
        })?;
    }
    let mut runs: Vec<RunOutput> = runs.into_values().collect();
    runs.sort_by_key(|run| (run.index, run.unit));
    Ok(OutputSearch { runs, damaged_entries: torn })
}

/// Passes every entry of an index to `on_entry`. Returns the number of damaged entries.
fn read_index(path: &Path, mut on_entry: impl FnMut(IndexEntry)) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 18, File::open(path)?);
    let (mut bytes, mut torn) = ([0; IndexEntry::LENGTH], 0);
    loop {
        match reader.read_exact(&mut bytes) {
            Ok(()) => match IndexEntry::from_bytes(&bytes) {
                Some(entry) => on_entry(entry),
                None => torn += 1,
            },
            // An incomplete last entry: the worker was killed, or is writing it now.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(torn),
            Err(error) => return Err(error),
        }
    }
}

fn add(runs: &mut BTreeMap<UnitId, RunOutput>, entry: IndexEntry, file: &Arc<PathBuf>) {
    let new = || RunOutput {
        unit: entry.lease.unit,
        index: entry.index,
        attempt: entry.attempt,
        is_complete: false,
        pieces: Vec::new(),
        file: Arc::clone(file),
        fence: entry.lease.fence,
    };
    let run = match runs.entry(entry.lease.unit) {
        Slot::Vacant(slot) => slot.insert(new()),
        Slot::Occupied(slot) => slot.into_mut(),
    };
    if run.fence > entry.lease.fence {
        return;
    }
    if run.fence < entry.lease.fence {
        *run = new();
    }
    run.is_complete |= entry.last;
    let IndexEntry { channel, offset, length, sum, .. } = entry;
    if length > 0 {
        run.pieces.push(OutputPiece { channel, offset, length, sum });
    }
}

impl RunOutput {
    /// Copies the run's output in order, of one channel or of both.
    pub fn copy(&self, only: Option<OutputChannel>, to: &mut impl Write) -> io::Result<CopyReport> {
        let wanted = |piece: &&OutputPiece| only.is_none_or(|only| piece.channel == only);
        let mut pieces = self.pieces.iter().filter(wanted).peekable();
        let mut copied = CopyReport::default();
        if pieces.peek().is_none() {
            return Ok(copied);
        }
        let file = File::open(&*self.file)?;
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.resize(piece.length as usize, 0);
            let read = file.read_exact_at(&mut bytes, piece.offset);
            if read.is_ok() && crc32fast::hash(&bytes) == piece.sum {
                to.write_all(&bytes)?;
                copied.bytes += u64::from(piece.length);
            } else {
                copied.lost += u64::from(piece.length);
            }
        }
        Ok(copied)
    }
}
