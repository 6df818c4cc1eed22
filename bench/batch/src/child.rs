//! What needs a process of its own: nothing else in it may use memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Subcommand;

use crate::figures;
use crate::models::Immediate;
use crate::ours::Review;

/// What the child process does.
#[derive(Debug, Subcommand)]
pub(crate) enum Child {
    /// A batch from end to end; prints the peak of its memory.
    #[command(hide = true)]
    Review {
        /// How many rows there are.
        rows: u64,
        /// How many are worked on at once.
        workers: u32,
        /// Where they are.
        folder: PathBuf,
    },
}

impl Child {
    /// Does it.
    pub(crate) async fn run(self) -> Result<()> {
        let Self::Review { rows, workers, folder } = self;
        let review = Review { folder: &folder, rows, workers, model: Arc::new(Immediate) };
        review.run().await?;
        println!("{}", figures::peak_memory()?);
        Ok(())
    }
}

/// Reviews the rows in `folder` in a child process; its memory at the peak, in MB.
pub(crate) fn peak(folder: &Path, rows: u64, workers: u32) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["review", &rows.to_string(), &workers.to_string()])
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the child process failed: {:?}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
