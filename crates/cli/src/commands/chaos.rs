//! `chaos`: runs a batch on real worker processes that are killed at random, then checks the
//! invariants.
//!
//! [`fault_injection`] submits, kills and stops, [`store_link`] lets the store fail, [`process`]
//! spawns the processes, [`invariants`] checks the result, and [`handler`] is the units' handler.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::args::chaos_bench::ChaosArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::store::{ScratchDatabase, StoreUrl};

pub use handler::{ChaosHandler, KIND};

mod fault_injection;
mod handler;
mod invariants;
mod process;
mod random;
mod store_link;

/// Runs the command.
pub async fn run(typed: ChaosArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let run_dir = RunDir::new(&typed)?;
    let (settings, scratch) = own_store(&typed, run_dir.dir(), settings).await?;
    let output = settings.output;
    let seed = typed.seed.unwrap_or_else(random::seed);
    output.note(format!(
        "{} units, {} workers of {} slots, {} kills, seed {seed}, in {}",
        typed.units,
        typed.workers,
        typed.slots,
        typed.kills,
        run_dir.dir().display()
    ));
    let record = fault_injection::run(&typed, seed, run_dir.dir(), &settings).await?;
    let report = invariants::check(&record, run_dir.dir(), &settings).await?;
    report.print(output)?;
    if !report.holds() || typed.keep {
        let kept = run_dir.keep();
        output.note(format!("kept: {}, {}", kept.display(), settings.store));
    } else if let Some(scratch) = scratch {
        scratch.drop().await?;
    }
    Ok(if report.holds() { ExitCode::Good } else { ExitCode::Error })
}

/// The settings with the run's own store: a file, or a database on the named server.
async fn own_store(
    typed: &ChaosArgs,
    dir: &Path,
    settings: &Settings,
) -> anyhow::Result<(Settings, Option<ScratchDatabase>)> {
    if let StoreUrl::Postgres(server) = &settings.store {
        let scratch = ScratchDatabase::make(server).await?;
        return Ok((scratch.settings(settings), Some(scratch)));
    }
    if typed.restart_command.is_some() {
        return Err(usage("--restart-command: this run has no server that could be restarted"))
            .hint("name one with --store postgres://…");
    }
    let store = StoreUrl::Sqlite(database(dir));
    Ok((Settings { store, ..settings.clone() }, None))
}

/// The directory of the run; a temporary one is removed afterwards unless it is kept.
enum RunDir {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl RunDir {
    fn new(typed: &ChaosArgs) -> anyhow::Result<Self> {
        let Some(dir) = &typed.dir else {
            return Ok(Self::Temporary(tempfile::tempdir()?));
        };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        if database(&dir).exists() {
            anyhow::bail!("{} holds an earlier run: choose an empty directory", dir.display());
        }
        Ok(Self::Given(dir))
    }

    fn dir(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }

    fn keep(self) -> PathBuf {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.keep(),
        }
    }
}

/// The run's own store, if it is a file.
fn database(dir: &Path) -> PathBuf {
    dir.join("chaos.db")
}

/// The file to which each run of a unit appends a line.
fn run_log(dir: &Path) -> PathBuf {
    dir.join("runs.log")
}
