//! `longshore unit|workers …` as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{BatchId, Kind, QueueName, SessionId, UnitId, UnitState};

use super::server::Server;
use crate::span::Span;

/// Look at units, retry or cancel them.
#[derive(Debug, Subcommand)]
pub enum Unit {
    /// Everything about one unit: payload, failures, result
    Show {
        /// The unit
        id: UnitId,
        #[command(flatten)]
        pool: InPool,
    },
    /// Units, newest first
    List(UnitList),
    /// Wait for a unit's end and print its result; the exit code tells how it went
    Wait {
        /// The unit
        id: UnitId,
        /// Give up waiting after this long
        #[arg(long, value_name = "TIME")]
        limit: Option<Span>,
        #[command(flatten)]
        server: Server,
    },
    /// Run failed, cancelled or scheduled units now, with fresh attempts
    Retry(Units),
    /// End units: waiting ones now, running ones as soon as they listen
    Cancel(Units),
}

/// Which units are listed.
#[derive(Debug, Args)]
pub struct UnitList {
    /// Only in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<UnitState>,
    /// Only of this queue
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Only of this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Only of this batch
    #[arg(long, value_name = "NAME")]
    pub batch: Option<BatchId>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub pool: InPool,
}

/// Where to look, if not in the store.
#[derive(Debug, Args)]
pub struct InPool {
    /// In the pool of this folder (see `dispatch start`): its server is asked, not the store
    #[arg(long, value_name = "DIR", conflicts_with_all = ["store", "server"])]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub server: Server,
}

/// Which part of a long list.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// At most so many
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Go on where an earlier list stopped
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
}

/// Some units.
#[derive(Debug, Args)]
pub struct Units {
    /// The units
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<UnitId>,
    #[command(flatten)]
    pub pool: InPool,
}

/// Look at workers, or give them orders.
#[derive(Debug, Args)]
pub struct Workers {
    #[command(subcommand)]
    pub order: Option<WorkerOrder>,
    #[command(flatten)]
    pub server: Server,
}

/// What a worker can be asked.
#[derive(Debug, Subcommand)]
pub enum WorkerOrder {
    /// Workers
    List,
    /// Claim nothing new
    Quiet(Session),
    /// Finish what is held, then end
    Drain(Session),
    /// End now; what runs is interrupted and will run again
    Stop(Session),
    /// Go on after `quiet`
    Work(Session),
    /// Have the supervisor here replace its processes, one after the other
    Refresh,
}

/// A worker by its session.
#[derive(Debug, Args)]
pub struct Session {
    /// The worker's id, as `longshore workers` shows it; its beginning is enough
    #[arg(value_name = "ID")]
    pub id: SessionPrefix,
}

/// The beginning of a session's id, or all of it.
#[derive(Debug, Clone)]
pub struct SessionPrefix(String);

impl SessionPrefix {
    /// Whether `session` may be meant.
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
            return Err("a worker's id, or at least its first 4 characters, is wanted".into());
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
