//! Writing the output of many scripts into two files of the worker's (`crate::stream`).
//!
//! What a script says is gathered and written in large pieces: a script that says little costs two
//! calls of the system, one that says much costs no memory. Bytes are written where the last good ones
//! ended, so a write that failed half leaves nothing in the way.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::script::Kept;
use crate::stream::{BYTES, Channel, Entry, INDEX, batch_mark, checksum};
use crate::wire::Order;

/// So much is gathered before it is written.
const PIECE: usize = 256 * 1024;
/// What was gathered for so long is written with what comes next, so that one may look meanwhile.
const AGE: Duration = Duration::from_secs(1);
/// Folders whose files are kept open though nobody writes.
const OPEN: usize = 16;

/// A worker's files, by their folder.
#[derive(Debug)]
pub(super) struct Streams {
    worker: String,
    open: Mutex<HashMap<PathBuf, Arc<Stream>>>,
}

impl Streams {
    pub(super) fn new(worker: String) -> Self {
        Self { worker, open: Mutex::default() }
    }

    /// The files in this folder.
    fn stream(&self, folder: &Path) -> io::Result<Arc<Stream>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = open.get(folder) {
            return Ok(Arc::clone(stream));
        }
        if open.len() >= OPEN {
            open.retain(|_, stream| Arc::strong_count(stream) > 1);
        }
        let stream = Arc::new(Stream::open(folder, &self.worker)?);
        open.insert(folder.to_path_buf(), Arc::clone(&stream));
        Ok(stream)
    }

    /// What takes in the output of one run. If there is no room for files, the script runs without.
    pub(super) fn sink(
        &self,
        folder: &Path,
        order: &Order,
        batch: Option<&str>,
    ) -> Result<Sink, String> {
        let stream = match self.stream(folder) {
            Ok(stream) => Ok(stream),
            Err(error) if is_full(&error) => Err(error.to_string()),
            Err(error) => return Err(format!("{}: {error}", folder.display())),
        };
        let (stream, problem) = match stream {
            Ok(stream) => (Some(stream), None),
            Err(problem) => (None, Some(problem)),
        };
        let head = Entry {
            lease: order.lease,
            attempt: order.attempt,
            batch: batch_mark(batch),
            index: order.index,
            channel: Channel::Stdout,
            last: false,
            offset: 0,
            length: 0,
            sum: 0,
        };
        let (bytes, parts) = (Vec::new(), Vec::new());
        let since = Instant::now();
        Ok(Sink { stream, head, bytes, parts, since, first: None, kept: 0, dropped: 0, problem })
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The two files in one folder.
#[derive(Debug)]
struct Stream {
    path: PathBuf,
    ends: Mutex<Ends>,
}

#[derive(Debug)]
struct Ends {
    bytes: File,
    index: File,
    /// Where the last good byte ends, and the last good entry.
    length: u64,
    entries: u64,
}

impl Stream {
    fn open(folder: &Path, worker: &str) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let open = |end: &str| {
            let path = folder.join(worker).with_added_extension(end);
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            let length = file.metadata()?.len();
            io::Result::Ok((path, file, length))
        };
        let (path, bytes, length) = open(BYTES)?;
        let (_, index, indexed) = open(INDEX)?;
        let entries = indexed / Entry::LENGTH as u64;
        Ok(Self { path, ends: Mutex::new(Ends { bytes, index, length, entries }) })
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    /// Writes pieces that follow each other, then their entries. Returns the number of the first.
    fn write(&mut self, bytes: &[u8], mut entries: Vec<Entry>) -> io::Result<u64> {
        if !bytes.is_empty() {
            self.bytes.write_all_at(bytes, self.length)?;
        }
        let mut offset = self.length;
        let mut written = Vec::with_capacity(entries.len() * Entry::LENGTH);
        for entry in &mut entries {
            entry.offset = offset;
            offset += u64::from(entry.length);
            written.extend(entry.to_bytes());
        }
        let first = self.entries;
        self.index.write_all_at(&written, first * Entry::LENGTH as u64)?;
        self.length = offset;
        self.entries += entries.len() as u64;
        Ok(first)
    }
}

/// Takes in the output of one run.
#[derive(Debug)]
pub(super) struct Sink {
    stream: Option<Arc<Stream>>,
    /// What all entries of the run have in common.
    head: Entry,
    /// What is not written yet, and whose each part of it is.
    bytes: Vec<u8>,
    parts: Vec<(Channel, usize)>,
    since: Instant,
    first: Option<u64>,
    kept: u64,
    dropped: u64,
    problem: Option<String>,
}

impl Sink {
    /// Takes in what the script said.
    pub(super) fn take(&mut self, channel: Channel, said: &[u8]) {
        if self.stream.is_none() || self.problem.is_some() {
            self.dropped += said.len() as u64;
            return;
        }
        if self.bytes.is_empty() {
            self.since = Instant::now();
        }
        self.bytes.extend_from_slice(said);
        match self.parts.last_mut() {
            Some((last, length)) if *last == channel => *length += said.len(),
            _ => self.parts.push((channel, said.len())),
        }
        if self.bytes.len() >= PIECE || self.since.elapsed() >= AGE {
            self.write(false);
        }
    }

    fn write(&mut self, last: bool) {
        let Some(stream) = &self.stream else { return };
        let mut rest = self.bytes.as_slice();
        let mut entries = Vec::with_capacity(self.parts.len().max(1));
        for (channel, length) in self.parts.drain(..) {
            let (piece, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = after;
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            entries.push(Entry { channel, length, sum: checksum(piece), ..self.head });
        }
        if last {
            match entries.last_mut() {
                Some(entry) => entry.last = true,
                // Even a run that said nothing is known: an earlier one may have said something.
                None => entries.push(Entry { last, sum: checksum(&[]), ..self.head }),
            }
        }
        let length = self.bytes.len() as u64;
        match stream.ends().write(&self.bytes, entries) {
            Ok(first) => {
                self.first.get_or_insert(first);
                self.kept += length;
            }
            Err(error) => {
                self.problem = Some(error.to_string());
                self.dropped += length;
            }
        }
        self.bytes.clear();
    }

    /// Writes the rest. Where it all is, and what went wrong.
    pub(super) fn finish(mut self) -> (Option<Kept>, Option<String>) {
        if self.problem.is_none() {
            self.write(true);
        }
        let dropped = self.dropped;
        let problem =
            self.problem.map(|why| format!("{dropped} bytes of output were dropped: {why}"));
        let path = self.stream.map(|stream| stream.path.clone());
        let kept = path.zip(self.first);
        (kept.map(|(file, entry)| Kept { file, entry, bytes: self.kept }), problem)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longshore::UnitId;
    use longshore::session::Lease;

    use super::*;

    fn order() -> Order {
        Order {
            lease: Lease { unit: UnitId::new(), fence: 1 },
            body: 0,
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
    fn on_a_full_disk_the_rest_is_dropped_and_told() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("w.out")).unwrap();
        let streams = Streams::new("w".into());
        let mut sink = streams.sink(folder.path(), &order(), None).unwrap();
        for _ in 0..3 {
            sink.take(Channel::Stdout, &vec![b'x'; PIECE]);
            assert!(sink.bytes.capacity() < 3 * PIECE, "nothing is gathered in vain");
        }
        let (kept, problem) = sink.finish();
        assert_eq!(kept, None);
        let problem = problem.unwrap();
        let wanted = format!("{} bytes of output were dropped: ", 3 * PIECE);
        assert!(problem.starts_with(&wanted) && problem.contains("No space"), "{problem}");
    }

    #[test]
    fn a_write_that_failed_leaves_nothing_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let streams = Streams::new("w".into());
        let said = |text: &str| {
            let mut sink = streams.sink(folder.path(), &order(), None).unwrap();
            sink.take(Channel::Stdout, text.as_bytes());
            sink.finish().0.unwrap()
        };
        said("first");
        // As half a write would leave it.
        let index = folder.path().join("w.idx");
        let file = OpenOptions::new().write(true).open(index).unwrap();
        file.write_all_at(b"half", Entry::LENGTH as u64).unwrap();
        let kept = said("second");
        assert_eq!((kept.entry, kept.bytes), (1, 6));
        let text = std::fs::read_to_string(folder.path().join("w.out")).unwrap();
        assert_eq!(text, "firstsecond");
        assert_eq!(file.metadata().unwrap().len(), 2 * Entry::LENGTH as u64);
    }
}
