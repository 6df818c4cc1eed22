//! `unit … --dir`: shows and controls scripts of a pool through its server.

use std::path::Path;
use std::time::Duration;

use longshore::duration::{self, format_ago};
use longshore::{HumanDuration, Timestamp, UnitId, byte_size};
use longshore_dispatch::request::{
    ClientRequest, ServerReply, TaskPosition, UnitDetails, UnitExplanation, UnitOperation,
    UnitOperationReport, UnitQuery, UnitSummary, WorkerObstacles,
};
use longshore_dispatch::script::{RunEnd, RunReport, Script};

use super::status::short_uid;
use super::{connect_in, unexpected_reply};
use crate::args::unit_worker::UnitListArgs;
use crate::commands::wait::with_wait_limit;
use crate::commands::{now, submit_script};
use crate::error::usage;
use crate::exit::ExitCode;
use crate::output::{Table, cell, clean_lines, right};
use crate::settings::Settings;

/// Shows a script.
pub async fn show(folder: &Path, id: UnitId, settings: &Settings) -> anyhow::Result<ExitCode> {
    let request = ClientRequest::Show(settings.tenant.clone(), id);
    let shown = match connect_in(folder).await?.request(&request).await? {
        ServerReply::Shown(shown) => shown,
        other => return Err(unexpected_reply(&other)),
    };
    settings.output.record(&shown, || record(&shown))?;
    let tail = shown.view.report.as_ref().map_or("", |report| report.tail.as_str());
    if !settings.output.is_json() && !tail.is_empty() {
        settings.output.line("")?;
        settings.output.line(clean_lines(tail.trim_end()))?;
    }
    Ok(ExitCode::Good)
}

fn record(shown: &UnitDetails) -> Table {
    let now = now();
    let view = &shown.view;
    let mut table = Table::record();
    table.field("unit", view.unit);
    table.field("state", view.state);
    table.field("script", shown.script.as_ref().map_or(String::new(), command_line));
    let script = shown.script.as_ref();
    table.field("directory", script.map_or(String::new(), |script| path(&script.dir)));
    table.field("name", script.and_then(|script| script.name.as_deref()).unwrap_or_default());
    table.field("tenant", &shown.tenant);
    let task = shown.task.as_ref().map_or(String::new(), |task| format!(", task {task}"));
    let index = shown.index.map_or(String::new(), |index| format!(", number {index}"));
    table.field("batch", shown.batch.as_ref().map_or(String::new(), |id| format!("{id}{task}{index}")));
    table.field("needs", &shown.request);
    table.field("priority", shown.priority);
    table.field("attempt", view.attempt);
    if view.lost > 0 {
        table.field("lost", format!("{} times, with its worker", view.lost));
    }
    table.field("created", format_ago(shown.created_at, now));
    table.field("since", format_ago(shown.since, now));
    if shown.cancel_requested {
        table.field("cancel", "requested");
    }
    for past in &shown.past {
        let first = past.failure.message.lines().next().unwrap_or_default();
        let words = format!("{}: {}: {first}", format_ago(past.at, now), past.failure.code);
        table.field(&format!("attempt {}", past.attempt), words);
    }
    if let Some(report) = &view.report {
        add_report(&mut table, report, now);
    }
    table
}

/// Explains why a script does not run.
pub async fn explain(folder: &Path, id: UnitId, settings: &Settings) -> anyhow::Result<ExitCode> {
    let request = ClientRequest::ExplainUnit(settings.tenant.clone(), id);
    let explained = match connect_in(folder).await?.request(&request).await? {
        ServerReply::UnitExplained(explained) => explained,
        other => return Err(unexpected_reply(&other)),
    };
    settings.output.record(&explained, || explanation(&explained))?;
    if !settings.output.is_json() && !explained.workers.is_empty() {
        settings.output.line("")?;
        settings.output.list(&explained.workers, || obstacles(&explained.workers))?;
    }
    Ok(ExitCode::Good)
}

fn explanation(explained: &UnitExplanation) -> Table {
    let mut table = Table::record();
    table.field("unit", explained.unit);
    table.field("state", explained.state);
    table.field("needs", &explained.request);
    let position = explained.position.as_ref().map(|position| match position {
        TaskPosition::Queued => "claimed by the server; no worker has it".to_owned(),
        TaskPosition::Restored => {
            "at a worker that has not reconnected since the server's restart".to_owned()
        }
        TaskPosition::Assigned { host } => format!("at a worker on {host}, after the scripts before it"),
        TaskPosition::Running { host } => format!("running on {host}"),
    });
    table.field("where", position.unwrap_or_default());
    for reason in &explained.reasons {
        table.field("waits", reason);
    }
    for obstacle in &explained.unfit {
        table.field("never fits", obstacle);
    }
    table
}

fn obstacles(workers: &[WorkerObstacles]) -> Table {
    let heading = [cell("worker"), cell("host"), right("process"), cell("why not")];
    let mut table = Table::new(heading, "no workers");
    for worker in workers {
        let why: Vec<String> = worker.obstacles.iter().map(ToString::to_string).collect();
        table.row([
            cell(short_uid(&worker.uid)),
            cell(&worker.host),
            right(worker.pid),
            cell(if why.is_empty() { "it fits".to_owned() } else { why.join("; ") }),
        ]);
    }
    table
}

/// Adds the worker's report of the last run.
fn add_report(table: &mut Table, report: &RunReport, now: Timestamp) {
    let at = Timestamp::from_micros;
    let (queued, started, ended) = (at(report.queued), at(report.started), at(report.ended));
    table.field("ended by", end_text(&report.end));
    table.field("host", &report.host);
    table.field("queued", format_ago(queued, now));
    table.field(
        "started",
        format!("{}, after {}", format_ago(started, now), duration::format(started.since(queued))),
    );
    table.field(
        "ended",
        format!("{}, after {}", format_ago(ended, now), duration::format(ended.since(started))),
    );
    table.field("CPU time", format!("{:.2} s", report.cpu.as_secs_f64()));
    table.field("peak memory", byte_size::format(report.peak_memory));
    if let Some(kept) = &report.output {
        table.field("output", format!("{} in {}", byte_size::format(kept.bytes), path(&kept.file)));
    }
    for remark in &report.remarks {
        table.field("remark", remark);
    }
}

fn end_text(end: &RunEnd) -> String {
    match end {
        RunEnd::Exited(code) => format!("exit code {code}"),
        RunEnd::Signalled(signal) => format!("signal {signal}"),
        RunEnd::TimedOut => "its time limit".to_owned(),
        RunEnd::Cancelled => "a cancellation".to_owned(),
        RunEnd::Interrupted => "its worker, which was stopped".to_owned(),
        RunEnd::Refused(why) | RunEnd::NotStarted(why) => format!("not started: {why}"),
        RunEnd::Unrecorded(why) => format!("success, but {why}"),
    }
}

fn command_line(script: &Script) -> String {
    let words = std::iter::once(path(&script.path)).chain(script.args.iter().cloned());
    words.collect::<Vec<_>>().join(" ")
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Lists scripts.
pub async fn list(folder: &Path, typed: UnitListArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let UnitListArgs { state, batch, page, queue, kind, .. } = typed;
    if queue.is_some() || kind.is_some() {
        return Err(usage("a pool has scripts only, in one queue: --queue and --kind do not apply"));
    }
    let units = UnitQuery { state, batch, after: page.after, limit: page.limit };
    let request = ClientRequest::Units(settings.tenant.clone(), units);
    let (units, next) = match connect_in(folder).await?.request(&request).await? {
        ServerReply::Units(units, next) => (units, next),
        other => return Err(unexpected_reply(&other)),
    };
    settings.output.list(&units, || self::table(&units))?;
    if let Some(next) = next {
        settings.output.note(format!("more with --after {next}"));
    }
    Ok(ExitCode::Good)
}

fn table(units: &[UnitSummary]) -> Table {
    let [unit, state, what] = ["unit", "state", "what"].map(cell);
    let heading = [unit, state, what, right("attempt"), cell("since"), cell("why")];
    let mut table = Table::new(heading, "no scripts");
    let now = now();
    for unit in units {
        let what = match (&unit.batch, unit.index) {
            (Some(batch), index) => {
                let words = [unit.task.clone(), index.map(|index| index.to_string())];
                format!("{batch} {}", words.into_iter().flatten().collect::<Vec<_>>().join(" "))
            }
            (None, _) => unit.name.clone().unwrap_or_default(),
        };
        let why = unit.failure.as_ref().map_or(String::new(), ToString::to_string);
        table.row([
            cell(unit.unit),
            cell(unit.state),
            cell(what),
            right(unit.attempt),
            cell(format_ago(unit.since, now)),
            cell(why.chars().take(60).collect::<String>()),
        ]);
    }
    table
}

/// Waits for a script's end, and prints its output.
pub async fn wait(
    folder: &Path,
    id: UnitId,
    limit: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let mut client = connect_in(folder).await?;
    let waiting = submit_script::wait_for_unit(&mut client, id, settings);
    let hint = format!("it continues; `longshore unit show {id}` shows it");
    with_wait_limit(limit.map(HumanDuration), &hint, waiting).await
}

/// Retries or cancels scripts.
pub async fn operate(
    folder: &Path,
    units: Vec<UnitId>,
    deed: UnitOperation,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let request = ClientRequest::Operate(settings.tenant.clone(), units, deed);
    let UnitOperationReport { changed, requested, skipped } =
        match connect_in(folder).await?.request(&request).await? {
            ServerReply::Operated(changed) => changed,
            other => return Err(unexpected_reply(&other)),
        };
    let became = match deed {
        UnitOperation::Cancel => "cancelled",
        UnitOperation::Retry => "ready again",
    };
    let done = longshore::store::UnitActionResult { changed, requested, skipped };
    settings.output.answer(&done, || crate::commands::unit::operation_text(&done, became))?;
    Ok(if changed + requested == 0 { ExitCode::Error } else { ExitCode::Good })
}
