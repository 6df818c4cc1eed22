//! The limit: length-prefixed frames over the pipes of a child that echoes them, without a pool. Nothing is
//! bounded, measured or timed, and nothing survives a crash.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::clock::Caller;

/// The argument that starts this program as the child.
pub(crate) const CHILD: &str = "raw-child";
/// The payload of a call that does nothing.
pub(crate) const SMALL: usize = 16;
/// The pipe size, as in our pools.
const PIPE: usize = 256 * 1024;

/// The child: echoes its input, and reads more only when everything is written.
pub(crate) fn child() -> ExitCode {
    match echo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn echo() -> std::io::Result<()> {
    // Uses the descriptors directly: Rust's standard output is line-buffered.
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut input = std::io::BufReader::with_capacity(64 * 1024, input);
    let mut output = std::io::BufWriter::with_capacity(64 * 1024, output);
    let mut body = Vec::new();
    loop {
        if input.buffer().is_empty() {
            output.flush()?;
        }
        let mut length = [0; 4];
        if input.read_exact(&mut length).is_err() {
            return Ok(());
        }
        body.resize(u32::from_le_bytes(length) as usize, 0);
        input.read_exact(&mut body)?;
        output.write_all(&length)?;
        output.write_all(&body)?;
    }
}

/// One child and its pipes, used by one caller at a time.
struct Wire {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    frame: Vec<u8>,
    body: Vec<u8>,
}

impl Wire {
    fn open(size: usize) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(CHILD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("no standard input")?;
        let output = child.stdout.take().context("no standard output")?;
        let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE);
        let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE);
        Ok(Self {
            _child: child,
            input,
            output: BufReader::with_capacity(64 * 1024, output),
            frame: frame(size),
            body: Vec::new(),
        })
    }

    async fn call(&mut self) -> Result<()> {
        self.input.write_all(&self.frame).await?;
        read(&mut self.output, &mut self.body).await
    }
}

fn frame(size: usize) -> Vec<u8> {
    let mut frame = (size as u32).to_le_bytes().to_vec();
    frame.resize(4 + size, 7);
    frame
}

async fn read(output: &mut BufReader<ChildStdout>, body: &mut Vec<u8>) -> Result<()> {
    let mut length = [0; 4];
    output.read_exact(&mut length).await?;
    body.resize(u32::from_le_bytes(length) as usize, 0);
    output.read_exact(body).await?;
    Ok(())
}

/// Two children, each with one call at a time.
#[derive(Clone)]
pub(crate) struct ByTurns {
    wires: Arc<[tokio::sync::Mutex<Wire>; 2]>,
    next: Arc<AtomicUsize>,
}

impl ByTurns {
    pub(crate) fn open(size: usize) -> Result<Self> {
        let wires = [Wire::open(size)?, Wire::open(size)?].map(tokio::sync::Mutex::new);
        Ok(Self { wires: Arc::new(wires), next: Arc::default() })
    }
}

impl Caller for ByTurns {
    async fn call(&self) -> Result<()> {
        // A free child; otherwise waits for the next in turn.
        if let Some(mut wire) = self.wires.iter().find_map(|wire| wire.try_lock().ok()) {
            return wire.call().await;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % 2;
        self.wires[turn].lock().await.call().await
    }
}

/// Two children with many pipelined calls: callers write, one task per child reads.
#[derive(Clone)]
pub(crate) struct Pipelined {
    lanes: Arc<[Lane; 2]>,
    next: Arc<AtomicUsize>,
    _readers: Arc<JoinSet<()>>,
}

struct Lane {
    _child: Child,
    input: tokio::sync::Mutex<ChildStdin>,
    frame: Vec<u8>,
    /// The callers that wait for answers, in the order of their calls.
    waiting: Arc<Mutex<VecDeque<oneshot::Sender<()>>>>,
}

impl Pipelined {
    pub(crate) fn open() -> Result<Self> {
        let mut readers = JoinSet::new();
        let lanes = [Lane::open(&mut readers)?, Lane::open(&mut readers)?];
        Ok(Self { lanes: Arc::new(lanes), next: Arc::default(), _readers: Arc::new(readers) })
    }
}

impl Lane {
    fn open(readers: &mut JoinSet<()>) -> Result<Self> {
        let Wire { _child, input, mut output, frame, mut body } = Wire::open(SMALL)?;
        let waiting: Arc<Mutex<VecDeque<oneshot::Sender<()>>>> = Arc::default();
        let answered = Arc::clone(&waiting);
        readers.spawn(async move {
            while read(&mut output, &mut body).await.is_ok() {
                let first = lock(&answered).pop_front();
                let _ = first.map(|reply| reply.send(()));
            }
        });
        Ok(Self { _child, input: tokio::sync::Mutex::new(input), frame, waiting })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Caller for Pipelined {
    async fn call(&self) -> Result<()> {
        let lane = &self.lanes[self.next.fetch_add(1, Ordering::Relaxed) % 2];
        let (reply, answer) = oneshot::channel();
        let mut input = lane.input.lock().await;
        lock(&lane.waiting).push_back(reply);
        input.write_all(&lane.frame).await?;
        drop(input);
        Ok(answer.await?)
    }
}
