//! Which commands go over a server, and why others do not.

use super::batch::{Batch, Somewhere};
use super::cron::Cron;
use super::operate::{Unit, WorkerOrder};
use super::pool::Pool;
use super::queue::Queue;
use super::server::Server;
use super::submit::Submit;
use super::{Command, Late};

/// What was typed of a server, and why it does not help.
pub struct Over<'a> {
    /// What was typed.
    pub typed: &'a Server,
    /// Why the command does not go over a server, although others like it do.
    pub why_not: Option<&'static str>,
}

impl Command {
    /// What was typed of a server, if the command takes that.
    pub fn over(&self) -> Option<Over<'_>> {
        let (typed, why_not) = match self {
            Self::Submit(typed) => (&typed.server, scripts(typed)),
            Self::Unit(Late(typed)) => (of_unit(typed), None),
            Self::Queue(Late(typed)) => match typed {
                Queue::List { server } | Queue::Show { server, .. } => (server, None),
                Queue::Pause { server, .. } | Queue::Resume { server, .. } => (server, None),
                Queue::Set(_) | Queue::Purge { .. } => return None,
            },
            Self::Batch(Late(typed)) => of_batch(typed)?,
            Self::Workers(Late(typed)) => (&typed.server, typed.order.as_ref().and_then(here)),
            Self::Pool(Late(typed)) => match typed {
                Pool::Status(typed) => (&typed.server, None),
                Pool::Resize { server, .. } => (server, None),
                Pool::Init { .. } | Pool::Reset { .. } | Pool::Exec(_) => return None,
            },
            Self::Cron(Late(Cron::List { server, .. })) => (server, None),
            Self::Usage(Late(typed)) => {
                let recost = "costs are computed anew on the store itself, not over a server";
                (&typed.server, typed.verb.as_ref().map(|_| recost))
            }
            _ => return None,
        };
        Some(Over { typed, why_not })
    }
}

fn scripts(typed: &Submit) -> Option<&'static str> {
    let is_script = typed.script.script.is_some() || typed.script.job.is_some();
    is_script.then_some("scripts go to a pool of workers, not over a server")
}

fn here(order: &WorkerOrder) -> Option<&'static str> {
    let is_here = matches!(order, WorkerOrder::Refresh);
    is_here.then_some("a supervisor is told on its own machine, not over a server")
}

fn of_unit(typed: &Unit) -> &Server {
    match typed {
        Unit::Show { pool, .. } => &pool.server,
        Unit::List(list) => &list.pool.server,
        Unit::Retry(units) | Unit::Cancel(units) => &units.pool.server,
        Unit::Wait { server, .. } => server,
    }
}

fn of_batch(typed: &Batch) -> Option<(&Server, Option<&'static str>)> {
    let pool = match typed {
        Batch::List { pool, .. } => pool,
        Batch::Status(Somewhere { pool, .. })
        | Batch::Resume(Somewhere { pool, .. })
        | Batch::Cancel(Somewhere { pool, .. })
        | Batch::Watch { batch: Somewhere { pool, .. }, .. }
        | Batch::Pause { batch: Somewhere { pool, .. }, .. }
        | Batch::Drain { batch: Somewhere { pool, .. }, .. }
        | Batch::Retry { batch: Somewhere { pool, .. }, .. }
        | Batch::Rows { batch: Somewhere { pool, .. }, .. } => pool,
        Batch::Report { batch: Somewhere { pool, .. }, .. } => {
            let definition = "a report tells what the batch was to do, which a server does not";
            return Some((&pool.server, Some(definition)));
        }
        Batch::Run(_) | Batch::Start(_) | Batch::Recover { .. } => return None,
    };
    Some((&pool.server, None))
}
