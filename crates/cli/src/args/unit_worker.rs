//! Arguments of `longshore unit|workers …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{BatchId, HumanDuration, Kind, QueueName, SessionId, UnitId, UnitState};

use super::server::ServerArgs;

/// Show, retry or cancel units.
#[derive(Debug, Subcommand)]
pub enum UnitCommand {
    /// Show one unit: payload, failures, result
    Show {
        /// Id of the unit
        id: UnitId,
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// List units, newest first
    List(UnitListArgs),
    /// Wait for a unit's end and print its result; the exit code tells how it ended
    Wait {
        /// Id of the unit
        id: UnitId,
        /// Stop waiting after this long
        #[arg(long, value_name = "TIME")]
        limit: Option<HumanDuration>,
        #[command(flatten)]
        server: ServerArgs,
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
    /// Only units of this batch
    #[arg(long, value_name = "NAME")]
    pub batch: Option<BatchId>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub pool: PoolTarget,
}

/// Selects a pool or a server instead of the store.
#[derive(Debug, Args)]
pub struct PoolTarget {
    /// Folder of a pool (see `dispatch start`): ask its server, not the store
    #[arg(long, value_name = "DIR", conflicts_with_all = ["store", "server"])]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
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
    /// Ids of the units
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<UnitId>,
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
