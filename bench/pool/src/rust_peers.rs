//! Other Rust pools: tokio's blocking threads, and rayon with a channel for the answer.

use std::sync::Arc;

use anyhow::Result;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::clock::Caller;

/// tokio's blocking threads, without a limit.
#[derive(Clone)]
pub(crate) struct SpawnBlocking;

impl Caller for SpawnBlocking {
    async fn call(&self) -> Result<()> {
        Ok(tokio::task::spawn_blocking(|| ()).await?)
    }
}

/// tokio's blocking threads, limited to two as in the other pools: those of a second runtime.
#[derive(Clone)]
pub(crate) struct TwoBlocking {
    beside: Handle,
    _end: Arc<oneshot::Sender<()>>,
}

impl TwoBlocking {
    pub(crate) fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread().max_blocking_threads(2).build()?;
        let beside = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        // A runtime must not be dropped in an async context.
        std::thread::spawn(move || runtime.block_on(ended));
        Ok(Self { beside, _end: Arc::new(end) })
    }
}

impl Caller for TwoBlocking {
    async fn call(&self) -> Result<()> {
        Ok(self.beside.spawn_blocking(|| ()).await?)
    }
}

/// rayon's threads, with a oneshot channel for the answer.
#[derive(Clone)]
pub(crate) struct Rayon(Arc<rayon::ThreadPool>);

impl Rayon {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build()?)))
    }
}

impl Caller for Rayon {
    async fn call(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.0.spawn(move || _ = reply.send(()));
        Ok(answer.await?)
    }
}
