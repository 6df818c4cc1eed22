//! Writes the output of many scripts into two files per worker; the format is in `crate::stream`.
//!
//! Output is buffered and written in large pieces: a script with little output costs two system
//! calls, and one with much output costs no more memory. Each write begins where the last
//! successful one ended, so a partial write is overwritten.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::boundary::{Boundary, ExistingContent};
use super::output::FinishedOutput;
use crate::script::OutputLocation;
use crate::stream::{DATA_EXTENSION, INDEX_EXTENSION, IndexEntry, OutputChannel, batch_hash};
use crate::wire::TaskOrder;

/// Bytes to buffer before a write.
const WRITE_SIZE: usize = 256 * 1024;
/// Bytes that are older than this are written with the next output, so that a reader sees them
/// soon.
const MAX_BUFFER_AGE: Duration = Duration::from_secs(1);
/// Number of folders at which files without writers are closed.
const MAX_OPEN_FOLDERS: usize = 16;

/// A worker's files, by folder.
#[derive(Debug)]
pub(super) struct OutputStreams {
    worker: String,
    open: Mutex<HashMap<PathBuf, Arc<StreamFiles>>>,
}

impl OutputStreams {
    pub(super) fn new(worker: String) -> Self {
        Self { worker, open: Mutex::default() }
    }

    /// Opens the files in this folder, or returns the open ones.
    fn stream(&self, folder: &Path, boundary: &Boundary) -> io::Result<Arc<StreamFiles>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Files that were deleted or moved are left to the scripts that write to them.
        if let Some(stream) = open.get(folder).filter(|stream| stream.is_in_place()) {
            return Ok(Arc::clone(stream));
        }
        if open.len() >= MAX_OPEN_FOLDERS {
            open.retain(|_, stream| Arc::strong_count(stream) > 1);
        }
        let stream = Arc::new(StreamFiles::open(folder, &self.worker, boundary)?);
        open.insert(folder.to_path_buf(), Arc::clone(&stream));
        Ok(stream)
    }

    /// A sink for the output of one run. Without its files the script is not started.
    pub(super) fn sink(
        &self,
        folder: &Path,
        order: &TaskOrder,
        batch: Option<&str>,
        boundary: &Boundary,
    ) -> Result<StreamSink, String> {
        let stream = self.stream(folder, boundary);
        let stream = stream.map_err(|error| format!("{}: {error}", folder.display()))?;
        let entry_template = IndexEntry {
            lease: order.lease,
            attempt: order.attempt,
            batch: batch_hash(batch),
            index: order.index,
            channel: OutputChannel::Stdout,
            last: false,
            offset: 0,
            length: 0,
            sum: 0,
        };
        let (bytes, channels) = (Vec::new(), Vec::new());
        let buffered_since = Instant::now();
        Ok(StreamSink {
            stream,
            entry_template,
            bytes,
            channels,
            buffered_since,
            first: None,
            written: 0,
            dropped: 0,
            problem: None,
        })
    }
}

/// The data file and the index in one folder.
#[derive(Debug)]
struct StreamFiles {
    path: PathBuf,
    position: Mutex<AppendPosition>,
}

#[derive(Debug)]
struct AppendPosition {
    bytes: File,
    index: File,
    /// End of the last successful write in each file.
    length: u64,
    entries: u64,
}

impl StreamFiles {
    fn open(folder: &Path, worker: &str, boundary: &Boundary) -> io::Result<Self> {
        let open = |end: &str| {
            let path = folder.join(worker).with_added_extension(end);
            let file = boundary.open_output(&path, ExistingContent::Keep)?;
            let length = file.metadata()?.len();
            io::Result::Ok((path, file, length))
        };
        let (path, bytes, length) = open(DATA_EXTENSION)?;
        let (_, index, indexed) = open(INDEX_EXTENSION)?;
        let entries = indexed / IndexEntry::LENGTH as u64;
        Ok(Self { path, position: Mutex::new(AppendPosition { bytes, index, length, entries }) })
    }

    /// Whether both files are still at their paths.
    fn is_in_place(&self) -> bool {
        let position = self.position();
        let is_same = |file: &File, end: &str| {
            let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
            let at_path = std::fs::metadata(self.path.with_extension(end)).map(identity);
            matches!((file.metadata().map(identity), at_path), (Ok(own), Ok(other)) if own == other)
        };
        is_same(&position.bytes, DATA_EXTENSION) && is_same(&position.index, INDEX_EXTENSION)
    }

    /// Whether one of the files was deleted.
    fn is_deleted(&self) -> bool {
        let position = self.position();
        let is_gone = |file: &File| file.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
        is_gone(&position.bytes) || is_gone(&position.index)
    }

    fn position(&self) -> MutexGuard<'_, AppendPosition> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppendPosition {
    /// Writes consecutive pieces, then their entries. Returns the number of the first entry.
    fn write(&mut self, bytes: &[u8], mut entries: Vec<IndexEntry>) -> io::Result<u64> {
        if !bytes.is_empty() {
            self.bytes.write_all_at(bytes, self.length)?;
        }
        let mut offset = self.length;
        let mut written = Vec::with_capacity(entries.len() * IndexEntry::LENGTH);
        for entry in &mut entries {
            entry.offset = offset;
            offset += u64::from(entry.length);
            written.extend(entry.to_bytes());
        }
        let first = self.entries;
        self.index.write_all_at(&written, first * IndexEntry::LENGTH as u64)?;
        self.length = offset;
        self.entries += entries.len() as u64;
        Ok(first)
    }
}

/// Stores the output of one run.
#[derive(Debug)]
pub(super) struct StreamSink {
    stream: Arc<StreamFiles>,
    /// What all entries of the run share.
    entry_template: IndexEntry,
    /// Bytes that are not written yet, and the channel and length of each part.
    bytes: Vec<u8>,
    channels: Vec<(OutputChannel, usize)>,
    buffered_since: Instant,
    first: Option<u64>,
    written: u64,
    dropped: u64,
    problem: Option<String>,
}

impl StreamSink {
    /// Takes output of the script.
    pub(super) fn take(&mut self, channel: OutputChannel, bytes: &[u8]) {
        if self.problem.is_some() {
            self.dropped += bytes.len() as u64;
            return;
        }
        if self.bytes.is_empty() {
            self.buffered_since = Instant::now();
        }
        self.bytes.extend_from_slice(bytes);
        match self.channels.last_mut() {
            Some((last, length)) if *last == channel => *length += bytes.len(),
            _ => self.channels.push((channel, bytes.len())),
        }
        if self.bytes.len() >= WRITE_SIZE || self.buffered_since.elapsed() >= MAX_BUFFER_AGE {
            self.write(false);
        }
    }

    fn write(&mut self, last: bool) {
        let mut rest = self.bytes.as_slice();
        let mut entries = Vec::with_capacity(self.channels.len().max(1));
        for (channel, length) in self.channels.drain(..) {
            let (piece, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = after;
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            entries.push(IndexEntry { channel, length, sum: crc32fast::hash(piece), ..self.entry_template });
        }
        if last {
            match entries.last_mut() {
                Some(entry) => entry.last = true,
                // A run without output has an entry, too: it hides the output of an earlier run.
                None => entries.push(IndexEntry { last, sum: crc32fast::hash(&[]), ..self.entry_template }),
            }
        }
        let length = self.bytes.len() as u64;
        match self.stream.position().write(&self.bytes, entries) {
            Ok(first) => {
                self.first.get_or_insert(first);
                self.written += length;
            }
            Err(error) => {
                self.problem = Some(error.to_string());
                self.dropped += length;
            }
        }
        self.bytes.clear();
    }

    /// Writes the rest.
    pub(super) fn finish(mut self) -> FinishedOutput {
        if self.problem.is_none() {
            self.write(true);
        }
        let (dropped, file) = (self.dropped, self.stream.path.display());
        let is_deleted = self.stream.is_deleted();
        let problem = match self.problem {
            _ if is_deleted => Some(format!("its output {file} was deleted while it ran")),
            Some(why) => Some(format!("{dropped} bytes of output were not stored in {file}: {why}")),
            None => None,
        };
        let location = self.first.filter(|_| !is_deleted).map(|entry| OutputLocation {
            file: self.stream.path.clone(),
            entry,
            bytes: self.written,
        });
        FinishedOutput { tail: String::new(), location, problem }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longshore::UnitId;
    use longshore::worker_session::Lease;

    use super::*;

    fn unbounded() -> Boundary {
        Boundary::new(&[], &[]).unwrap()
    }

    fn order() -> TaskOrder {
        TaskOrder {
            lease: Lease { unit: UnitId::new(), fence: 1 },
            rights: longshore::Rights::Operator,
            script_id: 0,
            attempt: 1,
            queued: 0,
            index: None,
            line: None,
            threads: 1,
            resources: BTreeMap::new(),
            time_left: None,
        }
    }

    #[test]
    fn on_a_full_disk_the_rest_is_dropped_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("w.out")).unwrap();
        let streams = OutputStreams::new("w".into());
        let mut sink = streams.sink(folder.path(), &order(), None, &unbounded()).unwrap();
        for _ in 0..3 {
            sink.take(OutputChannel::Stdout, &vec![b'x'; WRITE_SIZE]);
            assert!(sink.bytes.capacity() < 3 * WRITE_SIZE, "nothing is gathered in vain");
        }
        let FinishedOutput { location, problem, .. } = sink.finish();
        assert_eq!(location, None);
        let problem = problem.unwrap();
        let wanted = format!("{} bytes of output were not stored in ", 3 * WRITE_SIZE);
        assert!(problem.starts_with(&wanted) && problem.contains("No space"), "{problem}");
    }

    #[test]
    fn output_goes_to_new_files_if_the_old_ones_are_gone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("logs");
        let streams = OutputStreams::new("w".into());
        let begin = || streams.sink(&folder, &order(), None, &unbounded()).unwrap();
        let end = |mut sink: StreamSink, text: &str| {
            sink.take(OutputChannel::Stdout, text.as_bytes());
            sink.finish()
        };
        assert!(end(begin(), "first").problem.is_none());
        std::fs::rename(&folder, parent.path().join("moved")).unwrap();
        assert!(end(begin(), "second").location.is_some());
        assert_eq!(std::fs::read_to_string(folder.join("w.out")).unwrap(), "second");
        let running = begin();
        std::fs::remove_dir_all(&folder).unwrap();
        let lost = end(running, "lost");
        assert!(lost.location.is_none(), "{lost:?}");
        assert!(lost.problem.unwrap().contains("was deleted while it ran"));
        assert!(end(begin(), "third").location.is_some());
        assert_eq!(std::fs::read_to_string(folder.join("w.out")).unwrap(), "third");
    }

    #[test]
    fn a_write_that_failed_leaves_nothing_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let streams = OutputStreams::new("w".into());
        let write = |text: &str| {
            let mut sink = streams.sink(folder.path(), &order(), None, &unbounded()).unwrap();
            sink.take(OutputChannel::Stdout, text.as_bytes());
            sink.finish().location.unwrap()
        };
        write("first");
        // As a partial write would leave it.
        let index = folder.path().join("w.idx");
        let file = File::options().write(true).open(index).unwrap();
        file.write_all_at(b"half", IndexEntry::LENGTH as u64).unwrap();
        let location = write("second");
        assert_eq!((location.entry, location.bytes), (1, 6));
        let text = std::fs::read_to_string(folder.path().join("w.out")).unwrap();
        assert_eq!(text, "firstsecond");
        assert_eq!(file.metadata().unwrap().len(), 2 * IndexEntry::LENGTH as u64);
    }
}
