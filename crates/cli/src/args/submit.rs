//! `longshore submit …` as typed.

use clap::{Args, ValueEnum};
use longshore::batch::{FailureLimit, OnThreshold};
use longshore::unit::{DedupWindow, OnDependencyFailure, OnDuplicate};
use longshore::{BatchId, Dedup, Kind, Priority, QueueName, Timestamp, UnitId, WhenFull};

use super::http::HttpCall;
use super::resource::Resource;
use super::script::ScriptCall;
use super::server::Server;
use crate::span::Span;

/// Send a unit, or a batch of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore submit exec '{\"argv\":[\"sh\",\"-c\",\"make test\"],\"timeout\":\"10m\"}'
  longshore submit exec @job.json --wait            prints the result; exit code 3 if it failed
  seq 1000 | sed 's/.*/{\"argv\":[\"echo\",\"&\"]}/' | longshore submit exec --lines - --batch demo
  longshore submit http --url https://example.com/hook --body '{\"n\":7}'
  longshore submit --script job.sh --array 1-1000%50 --nthr 2 --wait --progress
  longshore submit --job nightly.toml --wait        tasks that wait for each other
  longshore submit --script job.sh --qsys slurm --wait   straight to Slurm, without a pool
  longshore submit mail '{\"to\":7}' --key mail-7 --delay 5m --priority high

A batch that was interrupted goes on where it stopped when the same command is run again with the
same input. A queue is unbounded until `queue set` or `tenant set` bounds it; in a full one a sender
waits for room, unless --wait-room or --no-wait says otherwise. Units of kind `exec` are tried once unless --max-attempts says otherwise.")]
pub struct Submit {
    /// What the unit is: names the handler, as `exec`
    #[arg(required_unless_present_any = ["script", "job"], conflicts_with_all = ["script", "job"])]
    pub kind: Option<Kind>,
    /// JSON, `@FILE`, or `-` for stdin
    #[arg(required_unless_present_any = ["lines", "url", "script", "job"], conflicts_with = "lines")]
    pub payload: Option<String>,
    /// Send one unit per line of JSON in this file (`-`: stdin)
    #[arg(long, value_name = "FILE")]
    pub lines: Option<String>,
    /// With --lines: count the units together under this name, and resume if interrupted
    #[arg(long, value_name = "NAME", requires = "lines")]
    pub batch: Option<BatchId>,

    /// Where it waits [env: LONGSHORE_QUEUE] [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// high, normal, low, or 1 (first) to 9 (last)
    #[arg(long, default_value = "normal", value_name = "PRIORITY")]
    pub priority: Priority,
    /// Send it only if no unit of the queue has this key; with --lines they are KEY/1, KEY/2 and so on,
    /// and the same command may be run again
    #[arg(long, value_name = "KEY", conflicts_with = "batch")]
    pub key: Option<String>,
    /// How long the key is taken [default: live; kept with --lines]
    #[arg(long, value_enum, requires = "key")]
    pub window: Option<Window>,
    /// What to say if the key is taken
    #[arg(long, value_enum, default_value = "existing", requires = "key")]
    pub on_duplicate: Duplicate,
    /// Not before this long from now, as 5s
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    pub delay: Option<Span>,
    /// Not before this time, as 2030-01-31T08:00:00Z
    #[arg(long, value_name = "RFC3339", value_parser = Timestamp::parse)]
    pub at: Option<Timestamp>,
    /// Fail it if it is not done this long from now, or at this time
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Moment>,
    /// Longest run
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// How often it is tried in all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_attempts: Option<u32>,
    /// Not before this unit is done (may be repeated)
    #[arg(long, value_name = "UNIT")]
    pub after: Vec<UnitId>,
    /// What it does if one of those it waits for fails or is cancelled
    #[arg(long, value_enum, default_value = "cancel", requires = "after")]
    pub on_dependency_failure: WhenDependencyFails,
    /// How many slots it takes up
    #[arg(long, default_value_t = 1, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub weight: u32,
    /// Takes up so much of a resource that a worker has, as gpu=1 (may be repeated)
    #[arg(long, value_name = "NAME=N")]
    pub resource: Vec<Resource>,
    /// Units with the same cap key share --cap-limit
    #[arg(long, value_name = "KEY", requires = "cap_limit")]
    pub cap_key: Option<String>,
    /// How many units with this cap key may run at once
    #[arg(long, value_name = "N", requires = "cap_key", value_parser = clap::value_parser!(u32).range(1..))]
    pub cap_limit: Option<u32>,

    /// If there is no room for it (see `queue set`): wait at most this long, then exit with code 5
    /// [default: wait as long as it takes; a single script does not wait]
    #[arg(long, value_name = "TIME", conflicts_with = "no_wait")]
    pub wait_room: Option<Span>,
    /// If there is no room for it: do not wait, exit with code 5
    #[arg(long)]
    pub no_wait: bool,

    /// Wait for the end and print the result; the exit code tells how it went
    #[arg(long)]
    pub wait: bool,
    /// Give up waiting after this long
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub wait_limit: Option<Span>,

    #[command(flatten)]
    pub server: Server,
    #[command(flatten)]
    pub call: HttpCall,
    #[command(flatten)]
    pub script: ScriptCall,
    #[command(flatten)]
    pub about: About,
    /// How many lines are sent at once.
    #[arg(long, hide = true, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: u32,
}

impl Submit {
    /// What the unit is.
    pub fn kind(&self) -> anyhow::Result<&Kind> {
        self.kind.as_ref().ok_or_else(|| crate::error::usage("the unit's kind is missing"))
    }

    /// By what it is recognised.
    pub fn dedup(&self) -> Option<Dedup> {
        let (window, on_duplicate) = (self.window().into(), self.on_duplicate.into());
        self.key.clone().map(|key| Dedup { key, window, on_duplicate })
    }

    /// By what the `number`th of many is recognised.
    pub fn dedup_of(&self, number: u64) -> Option<Dedup> {
        self.dedup().map(|dedup| Dedup { key: format!("{}/{number}", dedup.key), ..dedup })
    }

    /// Lines that are sent again are to be recognised even if their units have ended meanwhile.
    fn window(&self) -> Window {
        let usual = if self.lines.is_some() { Window::Kept } else { Window::Live };
        self.window.unwrap_or(usual)
    }

    /// When it may begin, if that is later than `now`.
    pub fn not_before(&self, now: Timestamp) -> Option<Timestamp> {
        self.at.or_else(|| self.delay.map(|delay| now + delay.0))
    }

    /// What to do when there is no room.
    pub fn when_full(&self) -> WhenFull {
        match (self.no_wait, self.wait_room) {
            (true, _) => WhenFull::Refuse,
            (false, Some(Span(limit))) => WhenFull::WaitFor(limit),
            (false, None) => WhenFull::Wait,
        }
    }
}

/// What is noted about a batch.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for --batch")]
pub struct About {
    /// What sort of batch it is, for people and reports
    #[arg(long = "type", value_name = "WORD", requires = "batch")]
    pub batch_type: Option<String>,
    /// Words for people
    #[arg(long, value_name = "TEXT", requires = "batch")]
    pub notes: Option<String>,
    /// So many failures are too many: a number, or a share as 5%
    #[arg(long, value_name = "N|N%", requires = "batch")]
    pub threshold: Option<Threshold>,
    /// What the batch does at its threshold
    #[arg(long, value_enum, default_value = "pause", requires = "threshold")]
    pub on_threshold: AtThreshold,
}

/// How long a key is taken.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Window {
    /// Until its unit has ended
    Live,
    /// Until its unit's record is pruned
    Kept,
}

impl From<Window> for DedupWindow {
    fn from(typed: Window) -> Self {
        match typed {
            Window::Live => Self::WhileLive,
            Window::Kept => Self::WhileKept,
        }
    }
}

/// What a unit does when one it waits for did not end well.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum WhenDependencyFails {
    /// Is cancelled, and so are those that wait for it
    Cancel,
    /// Runs once all have ended
    Release,
}

impl From<WhenDependencyFails> for OnDependencyFailure {
    fn from(typed: WhenDependencyFails) -> Self {
        match typed {
            WhenDependencyFails::Cancel => Self::Cancel,
            WhenDependencyFails::Release => Self::Release,
        }
    }
}

/// What a taken key means to the sender.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Duplicate {
    /// Print the id of the unit that has it
    Existing,
    /// Refuse with an error
    Refuse,
}

impl From<Duplicate> for OnDuplicate {
    fn from(typed: Duplicate) -> Self {
        match typed {
            Duplicate::Existing => Self::Existing,
            Duplicate::Refuse => Self::Refused,
        }
    }
}

/// What a batch does at its failure threshold.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AtThreshold {
    /// Wait for someone to look
    Pause,
    /// Give up; its waiting units are cancelled
    Fail,
}

impl From<AtThreshold> for OnThreshold {
    fn from(typed: AtThreshold) -> Self {
        match typed {
            AtThreshold::Pause => Self::Pause,
            AtThreshold::Fail => Self::Fail,
        }
    }
}

/// A number of failures, or a share.
#[derive(Debug, Clone, Copy)]
pub struct Threshold(pub FailureLimit);

impl std::str::FromStr for Threshold {
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

/// A time, or a length of time from now.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    At(Timestamp),
    In(Span),
}

impl Moment {
    /// The time meant at `now`.
    pub fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::In(Span(time)) => now + time,
        }
    }
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = Timestamp::parse(text).map(Self::At);
        time.or_else(|_| text.parse().map(Self::In)).map_err(|_: String| {
            format!("`{text}` is neither a time as 2030-01-31T08:00:00Z nor a length as 30s")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_number_or_a_share() {
        let read = |text: &str| text.parse::<Threshold>().map(|t| t.0);
        assert_eq!(read("10"), Ok(FailureLimit::Units(10)));
        assert_eq!(read("2.5%"), Ok(FailureLimit::Percent(2.5)));
        for bad in ["0", "", "%", "101%", "-1", "nan%", "ten"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_threshold_is_read_or_named_in_the_error(text in r"-?[0-9.e]{0,5} ?%?|\PC*") {
            match text.parse::<Threshold>() {
                Ok(Threshold(FailureLimit::Units(units))) => proptest::prop_assert!(units > 0),
                Ok(Threshold(FailureLimit::Percent(share))) => {
                    proptest::prop_assert!(share > 0.0 && share <= 100.0);
                }
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }

        #[test]
        fn any_moment_is_read_or_named_in_the_error(
            text in r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z?|[0-9]{1,3}[a-z]|\PC*",
        ) {
            match text.parse::<Moment>() {
                Ok(moment) => _ = moment.from(Timestamp::ZERO),
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }
    }
}
