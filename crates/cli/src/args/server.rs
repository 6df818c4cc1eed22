//! Over which server a command goes, as typed. Flattened into those commands that can; others do not know
//! these options, and do not look at their variables.

use std::path::PathBuf;

use clap::Args;

use super::batch::{Batch, Somewhere};
use super::cron::Cron;
use super::operate::{Unit, WorkerOrder};
use super::pool::Pool;
use super::queue::Queue;
use super::{Command, Late};

/// A server instead of a store.
#[derive(Debug, Clone, Default, Args)]
pub struct Server {
    /// Ask the server there (`longshore serve`), not a store [env: LONGSHORE_SERVER]
    #[arg(long, value_name = "URL", conflicts_with = "store")]
    pub server: Option<String>,
    /// Where the server's token is [env: LONGSHORE_TOKEN is the token itself]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Trust this certificate (PEM) of the server's, or of who signed it
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub ca_file: Option<PathBuf>,
}

impl Command {
    /// What was typed of a server, by a command that can go over one.
    pub fn server(&self) -> Option<&Server> {
        match self {
            // Scripts go to a pool, and jobs of them too.
            Self::Submit(typed) if typed.script.script.is_some() || typed.script.job.is_some() => {
                None
            }
            Self::Submit(typed) => Some(&typed.server),
            Self::Unit(Late(typed)) => of_unit(typed),
            Self::Queue(Late(typed)) => match typed {
                Queue::List { server } | Queue::Show { server, .. } => Some(server),
                Queue::Pause { server, .. } | Queue::Resume { server, .. } => Some(server),
                Queue::Set(_) | Queue::Purge { .. } => None,
            },
            Self::Batch(Late(typed)) => of_batch(typed),
            Self::Workers(Late(typed)) => match &typed.order {
                Some(WorkerOrder::Refresh) => None,
                _ => Some(&typed.server),
            },
            Self::Pool(Late(typed)) => match typed {
                Pool::Status(typed) => Some(&typed.server),
                Pool::Resize { server, .. } => Some(server),
                Pool::Init { .. } | Pool::Reset { .. } | Pool::Exec(_) => None,
            },
            Self::Cron(Late(Cron::List { server, .. })) => Some(server),
            Self::Usage(Late(typed)) if typed.verb.is_none() => Some(&typed.server),
            _ => None,
        }
    }
}

fn of_unit(typed: &Unit) -> Option<&Server> {
    let place = match typed {
        Unit::Show { pool, .. } => pool,
        Unit::List(list) => &list.pool,
        Unit::Retry(units) | Unit::Cancel(units) => &units.pool,
        Unit::Wait { server, .. } => return Some(server),
    };
    place.server()
}

fn of_batch(typed: &Batch) -> Option<&Server> {
    let place = match typed {
        Batch::List { pool, .. } => pool,
        Batch::Status(Somewhere { pool, .. })
        | Batch::Resume(Somewhere { pool, .. })
        | Batch::Cancel(Somewhere { pool, .. })
        | Batch::Watch { batch: Somewhere { pool, .. }, .. }
        | Batch::Pause { batch: Somewhere { pool, .. }, .. }
        | Batch::Drain { batch: Somewhere { pool, .. }, .. }
        | Batch::Retry { batch: Somewhere { pool, .. }, .. }
        | Batch::Rows { batch: Somewhere { pool, .. }, .. }
        | Batch::Report { batch: Somewhere { pool, .. }, .. } => pool,
        Batch::Run(_) | Batch::Start(_) | Batch::Recover { .. } => return None,
    };
    place.server()
}
