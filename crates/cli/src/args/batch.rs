//! Arguments of `longshore batch …`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use longshore::{BatchId, BatchStatus, HumanDuration, UnitState};
use longshore_batch::definition::{MailMode, RowConcurrency};
use longshore_batch::row_listing::KeyRange;

use super::dispatch_pool::DispatchPoolArg;
use super::unit_worker::{PageArgs, PoolTarget};

/// Run batches of database rows; watch, pause, resume, cancel, retry and report them.
#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Run a batch file to its end, all in this process
    #[command(after_help = "Examples:
  longshore batch run examples/purchase-orders              the folder with batch.toml, or the file
  longshore batch run nightly.toml --param since=2026-11-01 --workers auto
  longshore batch run nightly.toml --dry-run                the prompts, and the estimated cost
  longshore batch run nightly.toml --sample 20              20 rows: their answers, and the cost of all
  longshore batch run nightly.toml --continue               the rest
  longshore batch run nightly.toml --check                  only if the answers to [[expect]] are right

Run again after a crash or Ctrl-C, it resumes the unfinished batch of the same file where it stopped.
Without --store and without a configured one, the batch is kept in the rows' own SQLite database, so
that POST commits in the transaction that finishes the row.

The first Ctrl-C drains: rows under way are finished. A second one stops.
Exit codes: 0 all done, 3 finished with failures, 4 cancelled or paused, 130 interrupted.")]
    Run(Box<BatchRunArgs>),
    /// Start a batch for workers elsewhere: write its record and its rows, then exit
    Start(Box<BatchFileArgs>),
    /// Resume every unfinished batch after a reboot, or the named ones, and run them to their end
    Recover {
        /// Batches to resume [default: every one that is queued or running]
        #[arg(value_name = "NAME")]
        names: Vec<BatchId>,
    },
    /// Accept that a batch's rows are in the database that its `database` names now: it was moved
    #[command(
        after_help = "A batch is bound to the database that it was started with. Where its `database` (as env:NAME)
names another one, its rows wait. Use this after the database was restored, upgraded or failed over,
with the variable set as the workers have it; then restart workers that still have the old value."
    )]
    Rebind(BatchNameArg),
    /// List batches, newest first
    List {
        /// Only batches with this status
        #[arg(long, value_name = "STATUS")]
        status: Option<BatchStatus>,
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// Show a batch's status and counters
    Status(BatchTarget),
    /// Follow a batch to its end; the exit code tells how it ended
    #[command(after_help = "Examples:
  longshore batch watch demo                        a bar with rate and time left
  longshore batch watch demo --json | tee log       one JSON object per change
  longshore batch watch demo --limit 1h && echo all done
  longshore batch watch demo --dir pool             an array of scripts in a pool

Exit codes: 0 all done, 3 finished with failures, 4 cancelled or paused, 130 interrupted.")]
    Watch {
        #[command(flatten)]
        batch: BatchTarget,
        /// Stop watching after this long
        #[arg(long, value_name = "TIME")]
        limit: Option<HumanDuration>,
    },
    /// Pause a batch: none of its units is claimed
    Pause {
        #[command(flatten)]
        batch: BatchTarget,
        /// Reason, shown with the batch
        #[arg(long, value_name = "TEXT", default_value = "by hand")]
        reason: String,
    },
    /// Resume a batch and reset its failure count
    Resume(BatchTarget),
    /// Pause a batch and wait until none of its units runs
    Drain {
        #[command(flatten)]
        batch: BatchTarget,
        /// Stop waiting after this long
        #[arg(long, value_name = "TIME")]
        limit: Option<HumanDuration>,
    },
    /// Cancel a batch: waiting units are cancelled, running ones asked to stop
    Cancel(BatchTarget),
    /// Retry the failed units of a batch, and the units that were cancelled because of them; after the
    /// batch's end this opens a new generation
    Retry {
        #[command(flatten)]
        batch: BatchTarget,
        /// Retry the failed units: the only choice so far, so it may be left out
        #[arg(long)]
        failed: bool,
    },
    /// Correct a running batch: its remaining rows run with the file as it is now
    #[command(after_help = "Examples:
  longshore batch update po-review-20261116 nightly.toml      the corrected prompt, rules, SQL or limits
  longshore batch update po-review-20261116 nightly.toml --dry-run

Workers take the new revision up by themselves, within a second or two. Rows that have ended stay as they
are; `batch rows --json` shows the revision that each row ran with. What selects and identifies the rows
(`candidates`, `database`, `type`, `retry`) cannot change.")]
    Update(Box<BatchUpdateArgs>),
    /// List the rows of a batch, or the scripts of an array, with their outcomes
    #[command(after_help = "Examples:
  longshore batch rows nightly --failed
  longshore batch rows nightly --code timeout --code rate-limited --attempt 3
  longshore batch rows nightly --key 4711 --key 5000..5999
  longshore batch rows nightly --format csv -o rows.csv      all rows, for a spreadsheet
  longshore batch rows nightly --failed --format ndjson | jq -r .key")]
    Rows(Box<BatchRowsArgs>),
    /// Print the output of a batch's scripts, or of one of them, wherever it was kept
    #[command(after_help = "Examples:
  longshore batch cat nightly                       all of an array, in the order of its indices
  longshore batch cat 12.3 --stderr                 one script of batch number 12
  longshore batch cat etl.fetch.3                   one script of a task of a job
  longshore batch cat last --stdout --follow        your newest submission, as it is written
  longshore batch cat 01980f6e-0000-7000-8000-000000000000

Output that is kept as `tail` is the last 4 KiB of a script that has ended, stdout and stderr together.")]
    Cat(BatchCatArgs),
    /// Compare the answers of two batches over the same rows: of two prompts, or of two models
    #[command(after_help = "Examples:
  longshore batch run nightly.toml --sample 50 --no-post       asks about 50 rows, changes nothing
  longshore batch run nightly-new.toml --sample 50 --no-post   the same rows with another prompt or profile
  longshore batch compare 20261118-200000-001 20261118-200130-001

Both must have kept their answers, which --sample, --no-post and `keep_answers` in [ai] do.")]
    Compare(BatchCompareArgs),
    /// Write a report of a batch
    Report {
        #[command(flatten)]
        batch: BatchTarget,
        /// Write one HTML page instead of Markdown
        #[arg(long)]
        html: bool,
        /// Write to this file instead of to stdout
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// `batch rows`
#[derive(Debug, Args)]
pub struct BatchRowsArgs {
    #[command(flatten)]
    pub batch: BatchTarget,
    /// Only the failed ones, with their reasons
    #[arg(long, conflicts_with = "state")]
    pub failed: bool,
    /// Only in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<UnitState>,
    /// Only with this code of their last failure (may be repeated)
    #[arg(long, value_name = "CODE")]
    pub code: Vec<String>,
    /// Only with this key, or in this range of keys, as 17, 17..20, 17.. or ..20 (may be repeated)
    #[arg(long, value_name = "KEY")]
    pub key: Vec<KeyRange>,
    /// Only after this many attempts
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// Export: all matching rows, with their results
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RowFormat>,
    /// Write the export to this file instead of to stdout
    #[arg(long, short, value_name = "FILE", requires = "format")]
    pub output: Option<PathBuf>,
    /// Maximum number of rows [default: 50; of an export: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Cursor at which an earlier list stopped
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
}

/// `batch cat`
#[derive(Debug, Args)]
pub struct BatchCatArgs {
    /// Array, job or script (name, number or `last`), task as 12.3 or etl.fetch.3, or id of a unit
    #[arg(value_name = "BATCH|UNIT")]
    pub whose: BatchId,
    /// Standard output only
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Standard error only
    #[arg(long)]
    pub stderr: bool,
    /// Print new output until all scripts have ended
    #[arg(long, short)]
    pub follow: bool,
    #[command(flatten)]
    pub pool: DispatchPoolArg,
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// Comma-separated values with a heading
    Csv,
    /// One JSON object per line
    Ndjson,
}

/// A batch by its name.
#[derive(Debug, Args)]
pub struct BatchNameArg {
    /// Name or number of the batch, or `last`: the newest of this user. In a pool also a task, as 12.3, or
    /// the id of a unit: a batch of one
    #[arg(value_name = "BATCH")]
    pub name: BatchId,
}

/// A batch by its name, in the store or in a pool.
#[derive(Debug, Args)]
pub struct BatchTarget {
    #[command(flatten)]
    pub batch: BatchNameArg,
    #[command(flatten)]
    pub pool: PoolTarget,
}

/// `batch compare`
#[derive(Debug, Args)]
pub struct BatchCompareArgs {
    /// Name or number of the first batch
    #[arg(value_name = "A")]
    pub a: BatchId,
    /// Name or number of the second batch
    #[arg(value_name = "B")]
    pub b: BatchId,
    /// Also show the rows that agree
    #[arg(long)]
    pub all: bool,
    /// Write all rows as CSV
    #[arg(long)]
    pub csv: bool,
}

/// `batch run`
#[derive(Debug, Args)]
pub struct BatchRunArgs {
    #[command(flatten)]
    pub file: BatchFileArgs,
    /// Trial: run this many rows, spread over all, and print their answers and the cost of all rows
    #[arg(long, value_name = "N", conflicts_with_all = ["limit", "continue"], value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub sample: Option<u64>,
    /// Ask and keep the answers, but apply none: POST's SQL and completion are left out
    #[arg(long, conflicts_with = "continue")]
    pub no_post: bool,
    /// Run the rows that trials of this file have left (--sample, --limit)
    #[arg(long, conflicts_with_all = ["limit", "allow_duplicates"])]
    pub r#continue: bool,
    /// Ask about the rows of [[expect]] first, and run only if enough answers are right
    #[arg(long, conflicts_with = "dry_run")]
    pub check: bool,
    /// Show the SQL, the count, three prompts and the estimated cost; ask and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `batch update`
#[derive(Debug, Args)]
pub struct BatchUpdateArgs {
    #[command(flatten)]
    pub batch: BatchNameArg,
    /// Corrected batch file, or the folder with batch.toml in it
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Check the file and show what would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// A batch file, and the overrides of this run.
#[derive(Debug, Args)]
pub struct BatchFileArgs {
    /// Batch file, or the folder with batch.toml in it
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Parameter of the candidates' SQL, as since=2026-11-01 (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = param)]
    pub param: Vec<(String, String)>,
    /// Rows processed concurrently, or `auto`
    #[arg(long, value_name = "N", value_parser = workers)]
    pub workers: Option<RowConcurrency>,
    /// Process at most this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Include rows that another batch is processing
    #[arg(long)]
    pub allow_duplicates: bool,
    /// Start a new batch although one of this file is unfinished
    #[arg(long)]
    pub new: bool,
    /// Notes for people, stored with the batch
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub notes: String,
    /// How often a recipient gets mail; set by `mail digest`.
    #[arg(skip)]
    pub mode: Option<MailMode>,
}

/// Parses `NAME=VALUE`.
pub(super) fn param(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl BatchFileArgs {
    /// A file with these parameters and no other overrides.
    pub fn of(path: PathBuf, param: Vec<(String, String)>) -> Self {
        let (workers, limit, notes) = (None, None, String::new());
        Self { path, param, workers, limit, allow_duplicates: false, new: false, notes, mode: None }
    }
}

fn workers(text: &str) -> Result<RowConcurrency, String> {
    if text == "auto" {
        return Ok(RowConcurrency::Auto);
    }
    match u32::from_str(text) {
        Ok(0) | Err(_) => Err("expected a number from 1, or `auto`".to_owned()),
        Ok(workers) => Ok(RowConcurrency::Fixed(workers)),
    }
}
