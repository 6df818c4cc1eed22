//! Which commands can run through a server, and why others cannot.

use super::ai::AiCommand;
use super::batch::{BatchCommand, BatchTarget};
use super::cron::CronCommand;
use super::pool::PoolCommand;
use super::queue::QueueCommand;
use super::server::ServerArgs;
use super::submit::SubmitArgs;
use super::unit_worker::{UnitCommand, WorkersCommand};
use super::{CliCommand, DeferredArgs};

/// A command's server options, and why it cannot use them.
pub struct RemoteSupport<'a> {
    /// The options as typed.
    pub typed: &'a ServerArgs,
    /// Why the command cannot run through a server although similar ones can.
    pub refusal: Option<&'static str>,
}

impl CliCommand {
    /// The command's server options, if it takes any.
    pub fn remote_support(&self) -> Option<RemoteSupport<'_>> {
        let (typed, refusal) = match self {
            Self::Submit(typed) => (&typed.server, script_refusal(typed)),
            Self::Unit(DeferredArgs(typed)) => (unit_server(typed)?, None),
            Self::Queue(DeferredArgs(typed)) => match typed {
                QueueCommand::List { pool } | QueueCommand::Show { pool, .. } => (&pool.server, None),
                QueueCommand::Pause { pool, .. } | QueueCommand::Resume { pool, .. } => (&pool.server, None),
                QueueCommand::Set(_) | QueueCommand::Purge { .. } => return None,
            },
            Self::Batch(DeferredArgs(typed)) => batch_server(typed)?,
            Self::Workers(DeferredArgs(typed)) => {
                (&typed.server, typed.order.as_ref().and_then(refresh_refusal))
            }
            Self::Pool(DeferredArgs(typed)) => match typed {
                PoolCommand::Status(typed) => (&typed.server, None),
                PoolCommand::Resize { server, .. } => (server, None),
                PoolCommand::Init { .. } | PoolCommand::Reset { .. } | PoolCommand::Exec(_) => {
                    return None;
                }
            },
            Self::Cron(DeferredArgs(CronCommand::List { server, .. })) => (server, None),
            Self::Ai(DeferredArgs(AiCommand::Replies(typed))) => (&typed.server, None),
            Self::Usage(DeferredArgs(typed)) => {
                let recost = "costs are recomputed on the store itself, not over a server";
                (&typed.server, typed.command.as_ref().map(|_| recost))
            }
            _ => return None,
        };
        Some(RemoteSupport { typed, refusal })
    }
}

fn script_refusal(typed: &SubmitArgs) -> Option<&'static str> {
    let is_script = typed.script.is_runnable() || typed.script.job.is_some();
    is_script.then_some("scripts go to a pool of workers, not over a server")
}

fn refresh_refusal(order: &WorkersCommand) -> Option<&'static str> {
    let is_here = matches!(order, WorkersCommand::Refresh);
    is_here.then_some("a supervisor takes commands on its own machine only, not over a server")
}

fn unit_server(typed: &UnitCommand) -> Option<&ServerArgs> {
    Some(match typed {
        UnitCommand::Show { pool, .. } | UnitCommand::Wait { pool, .. } => &pool.server,
        UnitCommand::List(list) => &list.pool.server,
        UnitCommand::Retry(units) | UnitCommand::Cancel(units) => &units.pool.server,
        UnitCommand::Explain { .. } => return None,
    })
}

fn batch_server(typed: &BatchCommand) -> Option<(&ServerArgs, Option<&'static str>)> {
    let pool = match typed {
        BatchCommand::List { pool, .. } => pool,
        BatchCommand::Status(BatchTarget { pool, .. })
        | BatchCommand::Resume(BatchTarget { pool, .. })
        | BatchCommand::Cancel(BatchTarget { pool, .. })
        | BatchCommand::Watch { batch: BatchTarget { pool, .. }, .. }
        | BatchCommand::Pause { batch: BatchTarget { pool, .. }, .. }
        | BatchCommand::Drain { batch: BatchTarget { pool, .. }, .. }
        | BatchCommand::Retry { batch: BatchTarget { pool, .. }, .. } => pool,
        BatchCommand::Rows(typed) => &typed.batch.pool,
        BatchCommand::Report { batch: BatchTarget { pool, .. }, .. } => {
            let definition = "a report needs the batch's definition, which a server does not return";
            return Some((&pool.server, Some(definition)));
        }
        BatchCommand::Run(_)
        | BatchCommand::Start(_)
        | BatchCommand::Update(_)
        | BatchCommand::Rebind(_)
        | BatchCommand::Recover { .. }
        | BatchCommand::Cat(_)
        | BatchCommand::Compare(_) => {
            return None;
        }
    };
    Some((&pool.server, None))
}
