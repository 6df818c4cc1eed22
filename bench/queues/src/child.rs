//! Measurements in their own process: nothing else in it may use CPU or memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bench_queues::{figures, ours};
use clap::Subcommand;
use longshore::{BatchId, Client, Context, NewBatch, NewUnit, Policy, Worker};

use crate::peer;

/// The role of the child process.
#[derive(Debug, Subcommand)]
pub(crate) enum Child {
    /// Runs an idle worker.
    #[command(hide = true)]
    Idle {
        /// The number of seconds.
        seconds: u64,
        /// The folder of its database.
        folder: PathBuf,
    },
    /// Sends a batch from a stream.
    #[command(hide = true)]
    Stream {
        /// The number of units.
        count: usize,
        /// The folder of its database.
        folder: PathBuf,
    },
    /// One run for the comparison with peers; `bench/peers/run` calls it.
    Peer(peer::Peer),
}

/// The resources that the child used.
pub(crate) struct Used {
    pub(crate) cpu_percent: f64,
    pub(crate) megabytes: f64,
}

impl Child {
    /// Runs the role and prints the resources it used.
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Idle { seconds, folder } => idle(seconds, &folder).await,
            Self::Stream { count, folder } => stream(count, &folder).await,
            Self::Peer(peer) => peer.run().await,
        }
    }
}

async fn idle(seconds: u64, folder: &Path) -> Result<()> {
    let worker = Worker::builder(ours::open(folder)?)
        .slots(64)
        .handle_fn(ours::noop()?, Policy::default(), |_: Context, (): ()| async { Ok::<(), String>(()) })
        .build()?;
    let control = worker.control();
    let watch = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, ..) = figures::usage()?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let (after, _, rss) = figures::usage()?;
        println!("{} {rss}", (after - before) * 100.0 / seconds as f64);
        control.drain();
        anyhow::Ok(())
    };
    let (report, watched) = tokio::join!(worker.run(), watch);
    report?;
    watched
}

async fn stream(count: usize, folder: &Path) -> Result<()> {
    let client = Client::new(ours::open(folder)?);
    let mut batch = client.open_batch(NewBatch::new(BatchId::new("stream")?)).await?;
    let kind = ours::noop()?;
    for start in (0..count).step_by(1000) {
        let end = (start + 1000).min(count);
        let units =
            (start..end).map(|i| NewUnit::new(kind.clone(), format!("{{\"i\":{i}}}").into_bytes())).collect();
        batch.add(units, end.to_string()).await?;
    }
    batch.seal().await?;
    let (_, peak, _) = figures::usage()?;
    println!("0 {peak}");
    Ok(())
}

/// Runs this program as a child.
pub(crate) fn spawn(args: &[&str], folder: &Path) -> Result<Used> {
    let output = std::process::Command::new(std::env::current_exe()?)
        .args(args)
        .arg(folder)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the child process failed: {:?}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let (cpu, megabytes) = text.trim().split_once(' ').context("the child said nothing")?;
    Ok(Used { cpu_percent: cpu.parse()?, megabytes: megabytes.parse()? })
}
