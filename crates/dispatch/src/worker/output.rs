//! Connects and captures a script's output.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use longshore_process::BoundedOutput;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::boundary::ExistingContent;
use super::script_run::WorkerContext;
use super::stream_writer::StreamSink;
use crate::script::{self, OutputLocation, ScriptOutput};
use crate::stream::OutputChannel;
use crate::wire::TaskOrder;

/// Length of the stored end of the output.
const MAX_TAIL: usize = 4 * 1024;
/// Bytes to read at once.
const READ_CHUNK: usize = 64 * 1024;

/// Destination of a run's output.
pub(super) enum Destination {
    Nothing,
    Tail,
    Files(File, File),
    Stream(Option<StreamSink>),
}

impl Destination {
    /// Opens the files that the script needs.
    pub(super) fn open(
        output: &ScriptOutput,
        order: &TaskOrder,
        batch: Option<&str>,
        context: &WorkerContext,
    ) -> Result<Self, String> {
        let open = |path: &Path| {
            let path = script::expand_placeholders(path, order.lease.unit, order.index, order.attempt);
            let file = context.boundary.open_output(&path, ExistingContent::Truncate);
            file.map_err(|error| format!("{}: {error}", path.display()))
        };
        match output {
            ScriptOutput::Nothing => Ok(Self::Nothing),
            ScriptOutput::Tail => Ok(Self::Tail),
            ScriptOutput::Stream(folder) => context
                .streams
                .sink(folder, order, batch, &context.boundary)
                .map(|sink| Self::Stream(Some(sink))),
            ScriptOutput::Files { stdout, stderr } => {
                let out = open(stdout)?;
                let err = match stderr {
                    Some(path) => open(path)?,
                    None => out.try_clone().map_err(|error| error.to_string())?,
                };
                Ok(Self::Files(out, err))
            }
        }
    }

    /// Connects a command's output. Returns the capture, if the worker reads the output itself.
    pub(super) fn connect(
        &mut self,
        command: &mut Command,
        dev_null: &File,
    ) -> io::Result<Option<OutputCapture>> {
        match self {
            Self::Nothing => {
                command.stdout(dev_null.try_clone()?).stderr(dev_null.try_clone()?);
                Ok(None)
            }
            Self::Files(out, err) => {
                command.stdout(out.try_clone()?).stderr(err.try_clone()?);
                Ok(None)
            }
            Self::Tail => {
                let (reader, writer) = io::pipe()?;
                command.stdout(writer.try_clone()?).stderr(writer);
                Ok(Some(OutputCapture::new(reader, None, None)?))
            }
            Self::Stream(sink) => {
                let (out, to_out) = io::pipe()?;
                let (err, to_err) = io::pipe()?;
                command.stdout(to_out).stderr(to_err);
                Ok(Some(OutputCapture::new(out, Some(err), sink.take())?))
            }
        }
    }
}

/// Reads a script's output and keeps the end of it.
#[derive(Debug)]
pub(super) struct OutputCapture {
    reader: pipe::Receiver,
    /// Standard error, if it is captured separately.
    errors: Option<pipe::Receiver>,
    tail: BoundedOutput,
    /// Stores the complete output.
    sink: Option<StreamSink>,
}

impl OutputCapture {
    fn new(
        reader: io::PipeReader,
        errors: Option<io::PipeReader>,
        sink: Option<StreamSink>,
    ) -> io::Result<Self> {
        let receiver = |pipe| pipe::Receiver::from_owned_fd(OwnedFd::from(pipe));
        let errors = errors.map(receiver).transpose()?;
        let tail = BoundedOutput::new(0, MAX_TAIL);
        Ok(Self { reader: receiver(reader)?, errors, tail, sink })
    }

    /// Reads until all writers have closed the pipe. Cancel safe.
    pub(super) async fn read_to_end(&mut self) {
        let Some(errors) = &mut self.errors else {
            return self.tail.read_from(Some(&mut self.reader)).await;
        };
        let (mut out, mut err) = (vec![0; READ_CHUNK], vec![0; READ_CHUNK]);
        let (mut out_open, mut err_open) = (true, true);
        while out_open || err_open {
            let (channel, bytes) = tokio::select! {
                read = self.reader.read(&mut out), if out_open => {
                    let count = read.unwrap_or(0);
                    out_open = count > 0;
                    (OutputChannel::Stdout, out.get(..count).unwrap_or_default())
                }
                read = errors.read(&mut err), if err_open => {
                    let count = read.unwrap_or(0);
                    err_open = count > 0;
                    (OutputChannel::Stderr, err.get(..count).unwrap_or_default())
                }
            };
            self.tail.push(bytes);
            if let Some(sink) = self.sink.as_mut().filter(|_| !bytes.is_empty()) {
                sink.take(channel, bytes);
            }
        }
    }

    /// The end of the output, the location of the complete output, and an error.
    pub(super) fn finish(self) -> FinishedOutput {
        let stored = self.sink.map(StreamSink::finish).unwrap_or_default();
        FinishedOutput { tail: self.tail.text(|_| "…".to_owned()), ..stored }
    }
}

/// What was stored of a run's output.
#[derive(Debug, Default)]
pub(super) struct FinishedOutput {
    /// The end of the output.
    pub(super) tail: String,
    pub(super) location: Option<OutputLocation>,
    /// Why not all of it was stored.
    pub(super) problem: Option<String>,
}
