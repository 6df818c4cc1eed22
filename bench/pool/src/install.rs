//! Installs pinned versions of other languages' pools into a cache folder outside the repository: once, and
//! again after a change of the pins.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{Args, ours};

/// The runtime of a peer's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// The system's Python, without packages.
    PlainPython,
    /// Python in a virtual environment with the pins of `peers/python/requirements.txt`.
    Python,
    /// Node with the pins of `peers/node/package.json`.
    Node,
    /// Perl with the Debian package `libio-async-perl`.
    Perl,
}

/// Installs the requested runtimes and returns how to start programs on them.
pub(crate) struct Toolbox {
    cache: PathBuf,
    /// Whether installing is allowed.
    peers: bool,
}

/// The first arguments of a command.
pub(crate) type Words = Vec<OsString>;

impl Toolbox {
    pub(crate) fn new(args: &Args) -> Self {
        let home = std::env::var_os("HOME").unwrap_or_default();
        let usual = || Path::new(&home).join(".cache/longshore-peers");
        Self { cache: args.cache.clone().unwrap_or_else(usual), peers: args.peers }
    }

    /// Installs a runtime and returns the start of its commands; `None` if peers are not requested.
    pub(crate) fn words(&self, tool: Tool) -> Result<Option<Words>> {
        if !self.peers && tool != Tool::PlainPython {
            return Ok(None);
        }
        Ok(Some(match tool {
            Tool::PlainPython => vec![ours::python_program()?.into()],
            Tool::Python => vec![self.python()?.into()],
            Tool::Node => self.node()?,
            Tool::Perl => perl()?,
        }))
    }

    fn python(&self) -> Result<PathBuf> {
        let folder = self.cache.join("pool-python");
        let (python, pins) = (folder.join("bin/python"), peers("python/requirements.txt"));
        if !is_current(&folder, &pins)? {
            empty(&folder)?;
            let made = [OsString::from("-m"), "venv".into(), folder.clone().into()];
            step(Command::new(ours::python_program()?).args(made))?;
            let pip = ["-m", "pip", "install", "--quiet", "-r"];
            step(Command::new(&python).args(pip).arg(&pins))?;
            mark(&folder, &pins)?;
        }
        Ok(python)
    }

    fn node(&self) -> Result<Words> {
        let folder = self.cache.join("pool-node");
        let pins = peers("node/package.json");
        if !is_current(&folder, &pins)? {
            empty(&folder)?;
            fs::copy(&pins, folder.join("package.json"))?;
            let install = ["install", "--no-save", "--no-fund", "--no-audit"];
            step(Command::new("npm").args(install).current_dir(&folder))?;
            mark(&folder, &pins)?;
        }
        let mut path = OsString::from("NODE_PATH=");
        path.push(folder.join("node_modules"));
        Ok(vec!["env".into(), path, "node".into()])
    }
}

fn perl() -> Result<Words> {
    let mut look = Command::new("perl");
    let looked = look.args(["-MIO::Async::Function", "-e1"]).stderr(Stdio::null()).status();
    let there = looked.is_ok_and(|status| status.success());
    ensure!(there, "IO::Async is missing; install the Debian package libio-async-perl");
    Ok(vec!["perl".into()])
}

/// The path of a file in `peers/`.
pub(crate) fn peers(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(path)
}

/// Runs one step of an installation.
fn step(command: &mut Command) -> Result<()> {
    println!("installing: {command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}", words.trim());
    Ok(())
}

fn is_current(folder: &Path, pins: &Path) -> Result<bool> {
    let installed = fs::read(folder.join("installed")).ok();
    Ok(installed == Some(fs::read(pins)?))
}

fn mark(folder: &Path, pins: &Path) -> Result<()> {
    fs::copy(pins, folder.join("installed"))?;
    Ok(())
}

fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}
