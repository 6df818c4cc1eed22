//! `dispatch status` and `dispatch explain`.

use longshore::duration;
use longshore_dispatch::launch::{Explanation, PendingQuery};
use longshore_dispatch::request::{ClientRequest, PoolStatus, ServerReply, UnfitScripts, WorkerStatus};

use super::{ask_status, connect, unexpected_reply};
use crate::args::dispatch_pool::DispatchPoolArg;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Shows a pool's status.
pub async fn run(pool: &DispatchPoolArg, settings: &Settings) -> anyhow::Result<ExitCode> {
    let status = ask_status(&mut connect(pool, settings).await?).await?;
    if settings.output.is_json() {
        settings.output.json(&status)?;
        return Ok(ExitCode::Good);
    }
    settings.output.record(&status, || record(&status))?;
    if !status.workers.is_empty() {
        settings.output.line("")?;
        settings.output.list(&status.workers, || worker_table(&status.workers))?;
    }
    Ok(ExitCode::Good)
}

fn record(status: &PoolStatus) -> Table {
    let mut table = Table::record();
    table.field("server", format!("process {}, up for {}", status.pid, duration::format(status.up)));
    table.field("state", &status.state);
    let (min, max) = status.size;
    let wanted = if min == max { format!("{min}") } else { format!("{min} to {max}") };
    table.field("workers", format!("{} of {wanted}, by {}", status.workers.len(), status.base));
    table.field("waiting", status.ready + status.claimed.saturating_sub(status.running));
    table.field("for others", status.not_ready);
    table.field("running", status.running);
    table.field("done", status.done);
    table.field("failed", status.failed);
    table.field("cancelled", status.cancelled);
    for unfit in &status.unfit {
        table.field("never fit", unfit_text(unfit));
    }
    if let Some(words) = status.pending_query.as_ref().and_then(pending_request) {
        table.field("unanswered", words);
    }
    table
}

/// Waiting scripts that no worker can ever run.
fn unfit_text(unfit: &UnfitScripts) -> String {
    let UnfitScripts { scripts, unit, obstacles } = unfit;
    let why: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    format!("{scripts} waiting scripts, as {unit}: {}", why.join("; "))
}

/// The request that the base system has not answered, if it takes unusually long.
fn pending_request(asking: &PendingQuery) -> Option<String> {
    let PendingQuery { what, seconds } = asking;
    (*seconds > 0).then(|| {
        format!(
            "the base system was asked {what} {seconds} s ago; until it answers, the status is what was \
             known before"
        )
    })
}

/// The beginning of a worker's identity, which names it in commands.
pub(super) fn short_uid(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

pub(super) fn worker_table<'a>(workers: impl IntoIterator<Item = &'a WorkerStatus>) -> Table {
    let heading = [
        cell("worker"),
        cell("host"),
        right("process"),
        cell("state"),
        right("threads"),
        right("given"),
        right("scripts"),
        right("load"),
    ];
    let mut table = Table::new(heading, "no workers");
    for worker in workers {
        table.row([
            cell(short_uid(&worker.uid)),
            cell(&worker.host),
            right(worker.pid),
            cell(&worker.mood),
            right(worker.threads),
            right(worker.load),
            right(worker.tasks),
            right(format!("{:.2}", worker.average)),
        ]);
    }
    table
}

/// Explains why workers are not being launched.
pub async fn explain(pool: &DispatchPoolArg, settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut client = connect(pool, settings).await?;
    let explanation = match client.request(&ClientRequest::Explain).await? {
        ServerReply::Explained(explanation) => explanation,
        other => return Err(unexpected_reply(&other)),
    };
    settings.output.record(&explanation, || explained(&explanation))?;
    Ok(ExitCode::Good)
}

fn explained(explanation: &Explanation) -> Table {
    let Explanation { wanted, registered: here, pending, last_error: trouble, next_try, asking } =
        explanation;
    let mut table = Table::record();
    table.field("workers", format!("{wanted} wanted, {here} here, {} on their way", pending.len()));
    for words in pending {
        table.field("on its way", words);
    }
    if let Some(trouble) = trouble {
        table.field("trouble", trouble);
    }
    if let Some(seconds) = next_try {
        table.field("next try", format!("in {seconds} s"));
    }
    if let Some(words) = asking.as_ref().and_then(pending_request) {
        table.field("unanswered", words);
    }
    if pending.is_empty() && trouble.is_none() && wanted <= here {
        table.field("because", "there are as many as requested");
    }
    table
}
