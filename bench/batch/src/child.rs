//! Measurements in their own process: nothing else in it may use memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Subcommand;

use crate::figures;
use crate::models::Immediate;
use crate::ours::Review;

/// The role of the child process.
#[derive(Debug, Subcommand)]
pub(crate) enum Child {
    /// Runs a batch from end to end and prints its peak memory.
    #[command(hide = true)]
    Review {
        /// The number of rows.
        rows: u64,
        /// The number of concurrent rows.
        workers: u32,
        /// The folder of the rows.
        folder: PathBuf,
    },
}

impl Child {
    /// Runs the role.
    pub(crate) async fn run(self) -> Result<()> {
        let Self::Review { rows, workers, folder } = self;
        let review = Review { folder: &folder, rows, workers, model: Arc::new(Immediate) };
        review.run().await?;
        println!("{}", figures::peak_memory()?);
        Ok(())
    }
}

/// Reviews the rows in `folder` in a child process; returns its peak memory in MB.
pub(crate) fn peak(folder: &Path, rows: u64, workers: u32) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["review", &rows.to_string(), &workers.to_string()])
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the child process failed: {:?}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
