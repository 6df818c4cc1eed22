//! Arguments of `longshore submit …`.

use clap::{Args, ValueEnum};
use longshore::batch::{FailureLimit, OnThreshold};
use longshore::unit::{DedupWindow, OnDependencyFailure, OnDuplicate};
use longshore::{BatchId, Dedup, HumanDuration, Kind, Priority, QueueName, Timestamp, WhenFull};

use super::http::HttpArgs;
use super::resource::ResourceArg;
use super::script::ScriptArgs;
use super::server::ServerArgs;
use super::unit_worker::UnitRef;
use crate::time_arg::TimeArg;

/// Submit a unit, or a batch of units.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore submit exec '{\"argv\":[\"sh\",\"-c\",\"make test\"],\"timeout\":\"10m\"}'
  longshore submit exec @job.json --wait            prints the result; exit code 3 if it failed
  seq 1000 | sed 's/.*/{\"argv\":[\"echo\",\"&\"]}/' | longshore submit exec --lines - --batch demo
  longshore submit http --url https://example.com/hook --body '{\"n\":7}'
  longshore submit --script job.sh --array 1-1000%50 --nthr 2 --wait --progress
  longshore submit --nthr 4 --time 1:30:00 --wait -- make -j4     a command, on a worker of a pool
  longshore submit --job nightly.toml --wait        tasks with dependencies
  longshore submit --script job.sh --qsys slurm --wait   straight to Slurm, without a pool
  longshore submit mail '{\"to\":7}' --key mail-7 --delay 5m --priority high

A batch that was interrupted resumes where it stopped when the same command is run again with the
same input. A queue is unbounded until `queue set` or `tenant set` bounds it; in a full one a sender
waits for room, unless --wait-room or --no-wait says otherwise. Units of kind `exec` are tried once unless --max-attempts says otherwise.")]
pub struct SubmitArgs {
    /// Kind of the unit, which selects the handler, as `exec`
    #[arg(required_unless_present_any = ["runnable", "job"], conflicts_with_all = ["runnable", "job"])]
    pub kind: Option<Kind>,
    /// Payload as JSON, `@FILE`, or `-` for stdin
    #[arg(required_unless_present_any = ["lines", "url", "runnable", "job"], conflicts_with = "lines")]
    pub payload: Option<String>,
    /// File with one JSON payload per line (`-`: stdin): submit a unit for each
    #[arg(long, value_name = "FILE")]
    pub lines: Option<String>,
    /// With --lines: name of a batch that counts the units together and can be resumed
    #[arg(long, value_name = "NAME", requires = "lines")]
    pub batch: Option<BatchId>,

    /// Queue of the unit [env: LONGSHORE_QUEUE] [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Priority: high, normal, low, or 1 (first) to 9 (last)
    #[arg(long, default_value = "normal", value_name = "PRIORITY")]
    pub priority: Priority,
    /// Deduplication key: submit only if no unit of the queue has it; with --lines the keys are
    /// KEY/1, KEY/2 and so on, and the same command may be run again
    #[arg(long, value_name = "KEY", conflicts_with = "batch")]
    pub key: Option<String>,
    /// How long the key is taken [default: live; kept with --lines]
    #[arg(long, value_enum, requires = "key")]
    pub window: Option<DedupWindowArg>,
    /// Action if the key is taken
    #[arg(long, value_enum, default_value = "existing", requires = "key")]
    pub on_duplicate: OnDuplicateArg,
    /// Run after this long, as 5s
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    pub delay: Option<HumanDuration>,
    /// Run at this time or later, as 2030-01-31T08:00:00Z
    #[arg(long, value_name = "RFC3339", value_parser = parse_time)]
    pub at: Option<Timestamp>,
    /// Fail the unit if it is not done after this long, or at this time
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<TimeArg>,
    /// Maximum time of one run
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<HumanDuration>,
    /// Maximum number of attempts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_attempts: Option<u32>,
    /// Run after this unit is done (may be repeated); of a pool also a script by its number or name, or a task
    /// as 12.3
    #[arg(long, value_name = "UNIT")]
    pub after: Vec<UnitRef>,
    /// Action if a dependency fails or is cancelled
    #[arg(long, value_enum, default_value = "cancel", requires = "after")]
    pub on_dependency_failure: OnDependencyFailureArg,
    /// Slots that the unit needs
    #[arg(long, default_value_t = 1, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub weight: u32,
    /// Resource that the unit needs, as gpu=1; of a pool's worker also a fraction, as gpu=0.5 (may be
    /// repeated)
    #[arg(long, value_name = "NAME=N")]
    pub resource: Vec<ResourceArg>,
    /// Concurrency key: units with the same key share --cap-limit
    #[arg(long, value_name = "KEY", requires = "cap_limit")]
    pub cap_key: Option<String>,
    /// Maximum running units with this cap key
    #[arg(long, value_name = "N", requires = "cap_key", value_parser = clap::value_parser!(u32).range(1..))]
    pub cap_limit: Option<u32>,

    /// If the queue is full (see `queue set`): wait at most this long, then exit with code 5
    /// [default: wait without a limit; a single script does not wait]
    #[arg(long, value_name = "TIME", conflicts_with = "no_wait")]
    pub wait_room: Option<HumanDuration>,
    /// If the queue is full: do not wait, exit with code 5
    #[arg(long)]
    pub no_wait: bool,

    /// Wait for the end and print the result; the exit code tells how it ended
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this long
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub wait_limit: Option<HumanDuration>,

    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub call: HttpArgs,
    #[command(flatten)]
    pub script: ScriptArgs,
    #[command(flatten)]
    pub about: BatchRecordArgs,
    /// Lines per transaction.
    #[arg(long, hide = true, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: u32,
}

impl SubmitArgs {
    /// The unit's kind.
    pub fn kind(&self) -> anyhow::Result<&Kind> {
        self.kind.as_ref().ok_or_else(|| crate::error::usage("the unit's kind is missing"))
    }

    /// The deduplication key.
    pub fn dedup(&self) -> Option<Dedup> {
        let (window, on_duplicate) = (self.window().into(), self.on_duplicate.into());
        self.key.clone().map(|key| Dedup { key, window, on_duplicate })
    }

    /// The deduplication key of the `number`th line.
    pub fn dedup_of(&self, number: u64) -> Option<Dedup> {
        self.dedup().map(|dedup| Dedup { key: format!("{}/{number}", dedup.key), ..dedup })
    }

    /// A line that is submitted again must be recognised even if its unit has ended meanwhile.
    fn window(&self) -> DedupWindowArg {
        let usual = if self.lines.is_some() { DedupWindowArg::Kept } else { DedupWindowArg::Live };
        self.window.unwrap_or(usual)
    }

    /// When the unit may begin, if later than `now`.
    pub fn not_before(&self, now: Timestamp) -> Option<Timestamp> {
        self.at.or_else(|| self.delay.map(|delay| now + delay.0))
    }

    /// What to do when the queue is full.
    pub fn when_full(&self) -> WhenFull {
        match (self.no_wait, self.wait_room) {
            (true, _) => WhenFull::Reject,
            (false, Some(HumanDuration(limit))) => WhenFull::WaitFor(limit),
            (false, None) => WhenFull::Wait,
        }
    }
}

/// Options stored with a batch.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for --batch")]
pub struct BatchRecordArgs {
    /// Type of the batch, for people and reports
    #[arg(long = "type", value_name = "WORD", requires = "batch")]
    pub batch_type: Option<String>,
    /// Notes for people
    #[arg(long, value_name = "TEXT", requires = "batch")]
    pub notes: Option<String>,
    /// Number of failures that is too many, or their share as 5%
    #[arg(long, value_name = "N|N%", requires = "batch")]
    pub threshold: Option<FailureLimitArg>,
    /// Action at the threshold
    #[arg(long, value_enum, default_value = "pause", requires = "threshold")]
    pub on_threshold: OnThresholdArg,
}

/// How long a key is taken.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum DedupWindowArg {
    /// Until its unit has ended
    Live,
    /// Until its unit's record is pruned
    Kept,
}

impl From<DedupWindowArg> for DedupWindow {
    fn from(typed: DedupWindowArg) -> Self {
        match typed {
            DedupWindowArg::Live => Self::WhileLive,
            DedupWindowArg::Kept => Self::WhileKept,
        }
    }
}

/// What a unit does when a dependency does not succeed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OnDependencyFailureArg {
    /// Cancel the unit, and the units that depend on it
    Cancel,
    /// Run once all dependencies have ended
    Release,
}

impl From<OnDependencyFailureArg> for OnDependencyFailure {
    fn from(typed: OnDependencyFailureArg) -> Self {
        match typed {
            OnDependencyFailureArg::Cancel => Self::Cancel,
            OnDependencyFailureArg::Release => Self::Release,
        }
    }
}

/// What a taken key means to the sender.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OnDuplicateArg {
    /// Print the id of the unit that has the key
    Existing,
    /// Fail with an error
    Refuse,
}

impl From<OnDuplicateArg> for OnDuplicate {
    fn from(typed: OnDuplicateArg) -> Self {
        match typed {
            OnDuplicateArg::Existing => Self::Existing,
            OnDuplicateArg::Refuse => Self::Rejected,
        }
    }
}

/// What a batch does at its failure threshold.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OnThresholdArg {
    /// Pause until it is resumed by hand
    Pause,
    /// Fail; its waiting units are cancelled
    Fail,
}

impl From<OnThresholdArg> for OnThreshold {
    fn from(typed: OnThresholdArg) -> Self {
        match typed {
            OnThresholdArg::Pause => Self::Pause,
            OnThresholdArg::Fail => Self::Fail,
        }
    }
}

/// A number of failures, or their share.
#[derive(Debug, Clone, Copy)]
pub struct FailureLimitArg(pub FailureLimit);

impl std::str::FromStr for FailureLimitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is neither a number of units nor a share as 5%");
        let limit = match text.strip_suffix('%') {
            Some(share) => {
                let share: f64 = share.trim().parse().map_err(|_| bad())?;
                Some(share).filter(|s| *s > 0.0 && *s <= 100.0).map(FailureLimit::Percent)
            }
            None => text.parse().ok().filter(|n| *n > 0).map(FailureLimit::Units),
        };
        limit.map(Self).ok_or_else(bad)
    }
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text)
        .map_err(|_| format!("`{text}` is not a time as 2030-01-31T08:00:00Z; `--delay 5m` counts from now"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_number_or_a_share() {
        let read = |text: &str| text.parse::<FailureLimitArg>().map(|t| t.0);
        assert_eq!(read("10"), Ok(FailureLimit::Units(10)));
        assert_eq!(read("2.5%"), Ok(FailureLimit::Percent(2.5)));
        for bad in ["0", "", "%", "101%", "-1", "nan%", "ten"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_threshold_is_read_or_named_in_the_error(text in r"-?[0-9.e]{0,5} ?%?|\PC*") {
            match text.parse::<FailureLimitArg>() {
                Ok(FailureLimitArg(FailureLimit::Units(units))) => proptest::prop_assert!(units > 0),
                Ok(FailureLimitArg(FailureLimit::Percent(share))) => {
                    proptest::prop_assert!(share > 0.0 && share <= 100.0);
                }
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }
    }
}
