//! `longshore batch …` as typed.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use longshore::{BatchId, BatchStatus, UnitState};
use longshore_batch::definition::{MailMode, Workers};

use super::operate::{InPool, PageArgs};
use crate::span::Span;

/// Run batches of database rows; watch, pause, resume, cancel, retry and report them.
#[derive(Debug, Subcommand)]
pub enum Batch {
    /// Run a batch file to its end, all in this process
    #[command(after_help = "Examples:
  longshore batch run examples/purchase-orders              the folder with batch.toml, or the file
  longshore batch run nightly.toml --param since=2026-11-01 --workers auto
  longshore batch run nightly.toml --dry-run                what would be asked, and what it costs

Run again after a crash or Ctrl-C, it takes up the unfinished batch of the same file where it stopped.
Without --store and without a configured one, the batch is kept in the rows' own SQLite database, so
that what POST writes and the row's end are one transaction.

The first Ctrl-C drains: rows under way are finished. A second one stops.
Exit codes: 0 all done, 3 finished with failures, 4 cancelled or paused, 130 interrupted.")]
    Run(Box<Run>),
    /// Start a batch for workers elsewhere: write its record and its rows, then end
    Start(Box<File>),
    /// Take up every unfinished batch after a reboot, or the named ones, and run them to their end
    Recover {
        /// The batches [default: every one that is queued or running]
        #[arg(value_name = "NAME")]
        names: Vec<BatchId>,
    },
    /// Batches, newest first
    List {
        /// Only with this status
        #[arg(long, value_name = "STATUS")]
        status: Option<BatchStatus>,
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        pool: InPool,
    },
    /// Where a batch stands
    Status(Somewhere),
    /// Follow a batch to its end; the exit code tells how it went
    #[command(after_help = "Examples:
  longshore batch watch demo                        a bar with rate and time left
  longshore batch watch demo --json | tee log       one JSON object per change
  longshore batch watch demo --limit 1h && echo all done
  longshore batch watch demo --dir pool             an array of scripts in a pool

Exit codes: 0 all done, 3 finished with failures, 4 cancelled or paused, 130 interrupted.")]
    Watch {
        #[command(flatten)]
        batch: Somewhere,
        /// Give up watching after this long
        #[arg(long, value_name = "TIME")]
        limit: Option<Span>,
    },
    /// Claim no more of its units
    Pause {
        #[command(flatten)]
        batch: Somewhere,
        /// Why, for people
        #[arg(long, value_name = "TEXT", default_value = "by hand")]
        reason: String,
    },
    /// Claim its units again; failures so far are forgiven
    Resume(Somewhere),
    /// Pause it and wait until nothing of it runs any more
    Drain {
        #[command(flatten)]
        batch: Somewhere,
        /// Give up waiting after this long
        #[arg(long, value_name = "TIME")]
        limit: Option<Span>,
    },
    /// Give it up: waiting units are cancelled, running ones asked to stop
    Cancel(Somewhere),
    /// Run its failed units again; after the end this opens a new generation
    Retry {
        #[command(flatten)]
        batch: Somewhere,
        /// The failed ones: there is no other choice yet, so it may be left out
        #[arg(long)]
        failed: bool,
    },
    /// The rows of a batch, or the scripts of an array, with what became of them
    Rows {
        #[command(flatten)]
        batch: Somewhere,
        /// Only the failed ones, with their reasons
        #[arg(long, conflicts_with = "state")]
        failed: bool,
        /// Only in this state
        #[arg(long, value_name = "STATE")]
        state: Option<UnitState>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// What became of a batch, to read or to pass on
    Report {
        #[command(flatten)]
        batch: Somewhere,
        /// As one HTML page instead of Markdown
        #[arg(long)]
        html: bool,
        /// Into this file instead of to stdout
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// A batch by its name.
#[derive(Debug, Args)]
pub struct Named {
    /// The batch
    #[arg(value_name = "NAME")]
    pub name: BatchId,
}

/// A batch by its name, in the store or in a pool.
#[derive(Debug, Args)]
pub struct Somewhere {
    #[command(flatten)]
    pub batch: Named,
    #[command(flatten)]
    pub pool: InPool,
}

/// `batch run`
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub file: File,
    /// Show the SQL, the count, three prompts and the estimated cost; ask and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// A batch file, and what is different this time.
#[derive(Debug, Args)]
pub struct File {
    /// The batch file, or the folder with batch.toml in it
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// A parameter of the candidates' SQL, as since=2026-11-01 (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = param)]
    pub param: Vec<(String, String)>,
    /// Rows worked on at once, or `auto`
    #[arg(long, value_name = "N", value_parser = workers)]
    pub workers: Option<Workers>,
    /// At most so many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Take rows too that another batch works on
    #[arg(long)]
    pub allow_duplicates: bool,
    /// A new batch, although one of this file is unfinished
    #[arg(long)]
    pub new: bool,
    /// Words for people, kept with the batch
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub notes: String,
    /// How often rows are written to: `mail digest` says so
    #[arg(skip)]
    pub mode: Option<MailMode>,
}

/// `NAME=VALUE`.
pub(super) fn param(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl File {
    /// A file with these parameters, and nothing else that is different.
    pub fn of(path: PathBuf, param: Vec<(String, String)>) -> Self {
        let (workers, limit, notes) = (None, None, String::new());
        Self { path, param, workers, limit, allow_duplicates: false, new: false, notes, mode: None }
    }
}

fn workers(text: &str) -> Result<Workers, String> {
    if text == "auto" {
        return Ok(Workers::Auto);
    }
    match u32::from_str(text) {
        Ok(0) | Err(_) => Err("a number from 1 or `auto` is wanted".to_owned()),
        Ok(workers) => Ok(Workers::Fixed(workers)),
    }
}
