//! `chaos`: the proof for everyone. A batch runs on real worker processes while they are killed
//! at random; at the end the books must balance.
//!
//! The storm itself is [`storm`], processes are [`process`], the books are [`books`], and
//! [`handler`] is what the units do.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::args::proof::Chaos;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::store::{ScratchDatabase, StoreUrl};

pub use handler::{ChaosHandler, KIND};

mod books;
mod handler;
mod process;
mod random;
mod storm;

/// Runs the command.
pub async fn run(typed: Chaos, settings: &Settings) -> anyhow::Result<ExitCode> {
    let place = Place::new(&typed)?;
    let (settings, scratch) = own_store(&typed, place.dir(), settings).await?;
    let output = settings.output;
    let seed = typed.seed.unwrap_or_else(random::seed);
    output.note(format!(
        "{} units, {} workers of {} slots, {} kills, seed {seed}, in {}",
        typed.units,
        typed.workers,
        typed.slots,
        typed.kills,
        place.dir().display()
    ));
    let record = storm::run(&typed, seed, place.dir(), &settings).await?;
    let books = books::check(&record, place.dir(), &settings).await?;
    books.print(output)?;
    if !books.balance() || typed.keep {
        let kept = place.keep();
        output.note(format!("kept: {}, {}", kept.display(), settings.store));
    } else if let Some(scratch) = scratch {
        scratch.drop().await?;
    }
    Ok(if books.balance() { ExitCode::Good } else { ExitCode::Error })
}

/// The storm's own store, in the settings: a file, or a database on the server that was named.
async fn own_store(
    typed: &Chaos,
    dir: &Path,
    settings: &Settings,
) -> anyhow::Result<(Settings, Option<ScratchDatabase>)> {
    if let StoreUrl::Postgres(server) = &settings.store {
        let scratch = ScratchDatabase::make(server).await?;
        return Ok((scratch.settings(settings), Some(scratch)));
    }
    if typed.restart_command.is_some() {
        return Err(usage("--restart-command: this storm has no server that could be restarted"))
            .hint("name one with --store postgres://…");
    }
    let store = StoreUrl::Sqlite(database(dir));
    Ok((Settings { store, ..settings.clone() }, None))
}

/// Where the storm happens; gone afterwards unless it is kept.
enum Place {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Place {
    fn new(typed: &Chaos) -> anyhow::Result<Self> {
        let Some(dir) = &typed.dir else {
            return Ok(Self::Temporary(tempfile::tempdir()?));
        };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        if database(&dir).exists() {
            anyhow::bail!("{} holds an earlier storm: choose an empty directory", dir.display());
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

/// The storm's own store, if it is a file.
fn database(dir: &Path) -> PathBuf {
    dir.join("chaos.db")
}

/// Where each run leaves its line.
fn run_log(dir: &Path) -> PathBuf {
    dir.join("runs.log")
}
