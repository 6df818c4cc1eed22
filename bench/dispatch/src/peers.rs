//! Other tools that run many scripts, two at a time.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::Args;
use crate::floor::{SLOTS, ScriptFolder};

/// Another tool that runs scripts.
pub(crate) enum Peer {
    Xargs,
    Parallel,
    HyperQueue(PathBuf),
}

/// The tools to measure: xargs always, the others with `--peers`.
pub(crate) fn all(args: &Args) -> Result<Vec<Peer>> {
    let mut peers = vec![Peer::Xargs];
    if args.peers {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
        let install = Command::new(format!("{here}/install")).output()?;
        let said = String::from_utf8_lossy(&install.stdout).trim().to_owned();
        let wrong = String::from_utf8_lossy(&install.stderr);
        ensure!(install.status.success(), "peers/install: {wrong}");
        peers.extend([Peer::Parallel, Peer::HyperQueue(said.into())]);
    }
    Ok(peers)
}

impl Peer {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Xargs => "xargs -P2",
            Self::Parallel => "GNU parallel -j2",
            Self::HyperQueue(_) => "HyperQueue (wheel, with Python)",
        }
    }

    /// Runs all scripts of the folder.
    pub(crate) fn run(&self, place: &ScriptFolder) -> Result<Duration> {
        let slots = SLOTS.to_string();
        match self {
            Self::Xargs => {
                let mut command = Command::new("xargs");
                fed(command.args(["-P", &slots, "-n1", "/bin/bash"]), place)
            }
            Self::Parallel => {
                let mut command = Command::new("parallel");
                fed(command.args(["-j", &slots, "/bin/bash", "{}"]), place)
            }
            Self::HyperQueue(python) => hyperqueue(python, place),
        }
    }
}

/// Runs a command that reads the scripts' paths from its input.
fn fed(command: &mut Command, place: &ScriptFolder) -> Result<Duration> {
    let begin = Instant::now();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let line = format!("{}\n", place.script().display());
    if let Some(mut input) = child.stdin.take() {
        for _ in 0..place.scripts {
            input.write_all(line.as_bytes())?;
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(begin.elapsed())
}

/// HyperQueue reports its own duration: its client polls only once per second.
fn hyperqueue(python: &PathBuf, place: &ScriptFolder) -> Result<Duration> {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/hyperqueue_peer.py");
    let mut command = Command::new(python);
    command.arg(driver).arg(place.script()).arg(place.scripts.to_string()).arg(place.folder.path());
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "HyperQueue: {wrong}");
    let seconds = said.lines().last().unwrap_or_default().trim().parse();
    Ok(Duration::from_secs_f64(seconds.with_context(|| format!("HyperQueue said {said}"))?))
}
