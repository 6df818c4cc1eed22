//! Where a script's output goes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::script::{Kept, Output};
use crate::wire::Order;

/// So much of the end is kept.
const TAIL: usize = 4 * 1024;
/// Read at once.
const CHUNK: usize = 64 * 1024;

/// Where the output of one run goes.
pub(super) enum Destination {
    Nothing,
    Tail,
    Files(File, File),
}

impl Destination {
    pub(super) fn open(output: &Output, order: &Order) -> Result<Self, String> {
        let open = |path: &Path| {
            let path = filled(path, order);
            open(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        match output {
            Output::Nothing => Ok(Self::Nothing),
            Output::Tail | Output::Stream(_) => Ok(Self::Tail),
            Output::Files { stdout, stderr } => {
                let out = open(stdout)?;
                let err = match stderr {
                    Some(path) => open(path)?,
                    None => out.try_clone().map_err(|error| error.to_string())?,
                };
                Ok(Self::Files(out, err))
            }
        }
    }

    /// Connects a command, and returns what listens to it.
    pub(super) fn connect(
        &mut self,
        command: &mut Command,
        nowhere: &File,
    ) -> io::Result<Option<Capture>> {
        match self {
            Self::Nothing => {
                command.stdout(nowhere.try_clone()?).stderr(nowhere.try_clone()?);
                Ok(None)
            }
            Self::Files(out, err) => {
                command.stdout(out.try_clone()?).stderr(err.try_clone()?);
                Ok(None)
            }
            Self::Tail => {
                let (reader, writer) = io::pipe()?;
                command.stdout(writer.try_clone()?).stderr(writer);
                let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
                Ok(Some(Capture { reader, tail: Vec::new(), bytes: 0 }))
            }
        }
    }
}

/// Opens a file for output, with the folders that it needs.
fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).write(true).truncate(true).open(path)
}

/// A path with the marks `%u`, `%i` and `%a` filled in.
fn filled(path: &Path, order: &Order) -> PathBuf {
    let text = path.to_string_lossy();
    if !text.contains('%') {
        return path.to_path_buf();
    }
    let index = order.index.map_or_else(|| "0".to_owned(), |index| index.to_string());
    let text = text.replace("%u", &order.lease.unit.to_string()).replace("%i", &index);
    text.replace("%a", &order.attempt.to_string()).into()
}

/// Listens to a script and keeps the last of what it says.
#[derive(Debug)]
pub(super) struct Capture {
    reader: pipe::Receiver,
    tail: Vec<u8>,
    bytes: u64,
}

impl Capture {
    /// Listens until nobody can say anything any more. Dropped while it waits, it has lost nothing.
    pub(super) async fn listen(&mut self) {
        let mut chunk = vec![0; CHUNK];
        while let Ok(count @ 1..) = self.reader.read(&mut chunk).await {
            keep(&mut self.tail, chunk.get(..count).unwrap_or_default());
            self.bytes += count as u64;
        }
    }

    /// The last of it, where all of it is, and what went wrong.
    pub(super) fn finish(self) -> (String, Option<Kept>, Option<String>) {
        let from = self.tail.len().saturating_sub(TAIL);
        let tail = String::from_utf8_lossy(self.tail.get(from..).unwrap_or_default());
        let cut = if self.bytes > TAIL as u64 { "…" } else { "" };
        (format!("{cut}{tail}"), None, None)
    }
}

/// Appends, and drops from the front now and then: twice the tail at most.
fn keep(tail: &mut Vec<u8>, said: &[u8]) {
    let from = said.len().saturating_sub(TAIL);
    tail.extend_from_slice(said.get(from..).unwrap_or_default());
    if tail.len() > 2 * TAIL {
        tail.drain(..tail.len() - TAIL);
    }
}
