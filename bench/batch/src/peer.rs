//! The same review as a Python script, in its own process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::{per_second, rows};

const SCRIPT: &str = include_str!("../peer.py");

/// Whether Python is installed.
pub(crate) fn is_there() -> bool {
    let tried = Command::new("python3").args(["-c", "import sqlite3"]).status();
    tried.is_ok_and(|status| status.success())
}

/// Reviews `count` rows with this many threads; returns rows/s by the script's own clock, without the start of
/// the interpreter.
pub(crate) fn rate(folder: &Path, count: u64, threads: u32) -> Result<f64> {
    let path = rows::database(folder);
    rows::create(&path, count)?;
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(&path)
        .arg(threads.to_string())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the script failed: {:?}", output.status);
    rows::check(&path, count)?;
    let text = String::from_utf8(output.stdout)?;
    let (reviewed, seconds) = text.trim().split_once(' ').context("the script said nothing")?;
    Ok(per_second(reviewed.parse()?, Duration::from_secs_f64(seconds.parse()?)))
}
