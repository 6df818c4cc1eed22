//! Arguments of `longshore unit|workers …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{BatchId, HumanDuration, Kind, QueueName, SessionId, UnitId, UnitState};

use super::dispatch_pool::DispatchPoolArg;
use super::server::ServerArgs;

/// Show, retry or cancel units.
#[derive(Debug, Subcommand)]
pub enum UnitCommand {
    /// Show one unit: payload, failures, result
    Show {
        /// Id of the unit, a task of a batch as 12.3, or a single script by its name or number
        #[arg(value_name = "UNIT")]
        id: UnitRef,
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// Explain why a script of a pool does not run: what it waits for, and each worker's reason
    #[command(after_help = "Examples:
  longshore unit explain 01980f6e-0000-7000-8000-000000000000
  longshore unit explain 12.3 --dir pool --json        task 3 of array number 12
  longshore unit explain last.3                        of your newest array

For each worker: threads, memory, other resources, time left, draining, disconnected, reserved. `dispatch
explain` says why workers are not being launched.")]
    Explain {
        /// Id of the unit, a task of a batch as 12.3, or a single script by its name or number
        #[arg(value_name = "UNIT")]
        id: UnitRef,
        #[command(flatten)]
        pool: DispatchPoolArg,
    },
    /// List units, newest first
    List(UnitListArgs),
    /// Wait for a unit's end and print its result; the exit code tells how it ended
    Wait {
        /// Id of the unit, a task of a batch as 12.3, or a single script by its name or number
        #[arg(value_name = "UNIT")]
        id: UnitRef,
        /// Stop waiting after this long
        #[arg(long, value_name = "TIME")]
        limit: Option<HumanDuration>,
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// Retry failed, cancelled or scheduled units now, with fresh attempts
    Retry(UnitIdsArgs),
    /// Cancel units: waiting ones now, running ones when their handlers react
    Cancel(UnitIdsArgs),
}

/// Filters of a unit list.
#[derive(Debug, Args)]
pub struct UnitListArgs {
    /// Only units in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<UnitState>,
    /// Only units of this queue
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Only units of this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Only units of this batch: its name, its number, or `last`
    #[arg(long, value_name = "BATCH")]
    pub batch: Option<BatchId>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub pool: PoolTarget,
}

/// Selects a pool or a server instead of the store.
#[derive(Debug, Args)]
pub struct PoolTarget {
    /// Folder of a pool (see `dispatch start`): ask its server, not the store [env:
    /// LONGSHORE_DISPATCH_DIR, unless a store or a server is named]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["store", "server"])]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Selects a pool instead of the store.
#[derive(Debug, Args)]
pub struct LocalPoolTarget {
    /// Folder of a pool (see `dispatch start`): ask its server, not the store [env:
    /// LONGSHORE_DISPATCH_DIR, unless a store is named]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub dir: Option<PathBuf>,
}

/// A unit: its id, or its place in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitRef {
    /// Its id.
    Id(UnitId),
    /// A task, as `12.3` or `etl.fetch.3`; or a batch of one script, by its name, its number or as `last`.
    Task(BatchId),
}

impl std::str::FromStr for UnitRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let task = BatchId::new(text).map(Self::Task);
        task.map_err(|_| format!("`{text}` is neither the id of a unit nor a task of a batch, as 12.3"))
    }
}

impl std::fmt::Display for UnitRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Task(name) => name.fmt(f),
        }
    }
}

/// Selects a page of a long list.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Maximum number of entries
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Cursor at which an earlier list stopped
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
}

/// Several units.
#[derive(Debug, Args)]
pub struct UnitIdsArgs {
    /// Ids of the units, tasks of batches as 12.3, or single scripts by name or number
    #[arg(required = true, value_name = "UNIT")]
    pub ids: Vec<UnitRef>,
    #[command(flatten)]
    pub pool: PoolTarget,
}

/// List workers, or send them commands.
#[derive(Debug, Args)]
pub struct WorkersArgs {
    #[command(subcommand)]
    pub order: Option<WorkersCommand>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Commands to a worker.
#[derive(Debug, Subcommand)]
pub enum WorkersCommand {
    /// List workers
    List,
    /// Claim nothing new
    Quiet(SessionArg),
    /// Finish what is held, then exit
    Drain(SessionArg),
    /// Exit now; running units are interrupted and run again
    Stop(SessionArg),
    /// Resume claiming after `quiet`
    Work(SessionArg),
    /// Tell the supervisor on this machine to replace its processes, one by one
    Refresh,
}

/// A worker by its session.
#[derive(Debug, Args)]
pub struct SessionArg {
    /// Id of the worker, as `longshore workers` shows it, or its first characters
    #[arg(value_name = "ID")]
    pub id: SessionPrefix,
}

/// A session's id, or its first characters.
#[derive(Debug, Clone)]
pub struct SessionPrefix(String);

impl SessionPrefix {
    /// Whether the id of `session` begins with this.
    pub fn matches(&self, session: SessionId) -> bool {
        session.to_string().starts_with(&self.0)
    }
}

impl std::fmt::Display for SessionPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for SessionPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if text.len() < 4 || !fits {
            return Err("expected a worker's id, or at least its first 4 characters".into());
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_its_id_or_a_task_of_an_array() {
        let read = |text: &str| text.parse::<UnitRef>();
        let id = UnitId::new();
        assert_eq!(read(&id.to_string()), Ok(UnitRef::Id(id)));
        for name in ["12", "12.3", "last.0", "etl.fetch.17"] {
            assert_eq!(read(name), Ok(UnitRef::Task(BatchId::new(name).unwrap())));
        }
        for bad in ["", "12.+3", "a b.3"] {
            assert!(read(bad).unwrap_err().contains("neither"), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_the_beginning_of_an_id_or_refused(text in r"[0-9A-Fa-f-]{0,10}|\PC*") {
            if let Ok(prefix) = text.parse::<SessionPrefix>() {
                proptest::prop_assert!(text.len() >= 4 && text.is_ascii());
                let same = prefix.to_string().eq_ignore_ascii_case(&text);
                proptest::prop_assert!(same);
            }
        }

        #[test]
        fn a_worker_is_found_by_any_beginning_of_its_id(bytes: [u8; 16], length in 4_usize..=36) {
            let id = SessionId::from_bytes(bytes);
            let prefix: SessionPrefix = id.to_string()[..length].to_uppercase().parse().unwrap();
            proptest::prop_assert!(prefix.matches(id));
        }
    }
}
