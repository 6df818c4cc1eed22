//! `submit --job`: submits scripts with dependencies.
//!
//! Unit ids are made here, so that a task can name its dependencies before they are submitted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use longshore::{BatchId, UnitId, UnitState};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{
    ArrayItems, ClientRequest, Items, ServerReply, Submission, SubmitConditions, nth_unit_id,
};
use serde::Serialize;

use super::dispatch::{connect, unexpected_reply};
use super::submit_script::{ScriptContext, submission, warn_if_unfit};
use crate::args::submit::SubmitArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::jobfile::{self, JobPlan, JobTask};
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Maximum dependencies in one job: an array that depends on an array has as many as the product of
/// their sizes.
const MAX_DEPENDENCIES: u64 = 100_000;
/// How long the server may wait before it answers, and the interval between two reads of an array.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command.
pub async fn run(file: &Path, typed: &SubmitArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let job = jobfile::read(file)?;
    let submissions = submissions(&job, typed.wait, settings)?;
    let mut client = connect(&typed.script.pool, settings).await?;
    let mut sent = Vec::with_capacity(submissions.len());
    for (task, submission) in submissions {
        let items = submission.items.clone();
        let reply = client.request(&ClientRequest::Submit(Box::new(submission))).await;
        let reply = reply.hint(format!("{} tasks were sent before `{task}`", sent.len()))?;
        let ServerReply::Submitted { units, unfit, .. } = reply else {
            return Err(unexpected_reply(&reply));
        };
        warn_if_unfit(&unfit, &format!("task `{task}`"), settings);
        let (unit, array) = match items {
            Items::Once(unit) => (Some(unit), None),
            Items::Each { batch, .. } => (None, Some(batch)),
        };
        sent.push(SubmittedTask { task, unit, array, units, state: None });
    }
    if !typed.wait {
        settings.output.list(&sent, || table(&sent))?;
        return Ok(ExitCode::Good);
    }
    settings.output.note(format!("{}: {} tasks", job.name, sent.len()));
    let mut good = true;
    for sent in &mut sent {
        good &= wait_for(&mut client, sent).await?;
        let state = sent.state.as_deref().unwrap_or_default();
        settings.output.note(format!("{}: {state}", sent.task));
    }
    settings.output.list(&sent, || table(&sent))?;
    Ok(if good { ExitCode::Good } else { ExitCode::Failures })
}

/// A submitted task.
#[derive(Serialize)]
struct SubmittedTask {
    task: String,
    unit: Option<UnitId>,
    array: Option<BatchId>,
    units: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

fn table(sent: &[SubmittedTask]) -> Table {
    let heading = [cell("task"), right("scripts"), cell("state"), cell("unit or array")];
    let mut table = Table::new(heading, "no tasks");
    for sent in sent {
        let unit = sent.unit.map(|unit| unit.to_string());
        let array = sent.array.as_ref().map(ToString::to_string);
        table.row([
            cell(&sent.task),
            right(sent.units),
            cell(sent.state.as_deref().unwrap_or("sent")),
            cell(unit.or(array).unwrap_or_default()),
        ]);
    }
    table
}

/// The requests to the server, one per task. All scripts are checked before the first is submitted.
fn submissions(
    job: &JobPlan,
    awaited: bool,
    settings: &Settings,
) -> anyhow::Result<Vec<(String, Submission)>> {
    let mut ids: BTreeMap<&str, Vec<UnitId>> = BTreeMap::new();
    let mut edges = 0;
    let mut submissions = Vec::with_capacity(job.tasks.len());
    for task in &job.tasks {
        let named = |id: &String| ids.get(id.as_str()).cloned().unwrap_or_default();
        let after: Vec<UnitId> = task.after.iter().flat_map(named).collect();
        let waits = after.len() as u64;
        let mut submission = task_submission(job, task, after, awaited, settings)?;
        let own = own_ids(job, task, &mut submission)?;
        edges += waits * own.len() as u64;
        if edges > MAX_DEPENDENCIES {
            let words = format!("task `{}` exceeds the limit of {MAX_DEPENDENCIES} dependencies", task.id);
            return Err(usage(words)).hint("put one small task between two large arrays");
        }
        ids.insert(&task.id, own);
        submissions.push((task.id.clone(), submission));
    }
    Ok(submissions)
}

fn task_submission(
    job: &JobPlan,
    task: &JobTask,
    after: Vec<UnitId>,
    awaited: bool,
    settings: &Settings,
) -> anyhow::Result<Submission> {
    let context = ScriptContext {
        dir: &job.dir,
        priority: task.priority,
        slots: 1,
        resources: task.resources.clone(),
        after,
        awaited,
        conditions: SubmitConditions::default(),
    };
    submission(&task.call, context, settings).map_err(|error| error.context(format!("task `{}`", task.id)))
}

/// The ids of a task's units. An array's name gets a unique suffix: the same job may run again.
fn own_ids(job: &JobPlan, task: &JobTask, submission: &mut Submission) -> anyhow::Result<Vec<UnitId>> {
    let (batch, items, first) = match &mut submission.items {
        Items::Once(unit) => return Ok(vec![*unit]),
        Items::Each { batch, items, first, .. } => (batch, items, first),
    };
    let id = UnitId::new();
    *first = Some(id);
    let text = id.to_string();
    let end = text.get(text.len().saturating_sub(8)..).unwrap_or_default();
    *batch = BatchId::new(format!("{}-{}-{end}", job.name, task.id))
        .hint("arrays are named after the job and the task")?;
    let count = match items {
        ArrayItems::Ranges(_) => items.count(),
        ArrayItems::Lines(lines) => lines.len() as u64,
    };
    if count > MAX_DEPENDENCIES {
        // No task can depend on so many: if one does, the limit above rejects it.
        return Ok(vec![id; usize::try_from(MAX_DEPENDENCIES + 1).unwrap_or(usize::MAX)]);
    }
    Ok((0..count).map(|position| nth_unit_id(id, position)).collect())
}

/// Waits for a task's end. True if all its scripts succeeded.
async fn wait_for(client: &mut DispatchClient, sent: &mut SubmittedTask) -> anyhow::Result<bool> {
    let Some(batch) = &sent.array else {
        let Some(unit) = sent.unit else { return Ok(true) };
        loop {
            let reply = client.request(&ClientRequest::Unit(unit, 10 * POLL_INTERVAL)).await?;
            let ServerReply::Unit(view) = reply else { return Err(unexpected_reply(&reply)) };
            if view.state.is_final() {
                sent.state = Some(view.state.to_string());
                return Ok(view.state == UnitState::Done);
            }
        }
    };
    loop {
        let reply = client.request(&ClientRequest::Array(batch.clone())).await?;
        let ServerReply::Array(view) = reply else { return Err(unexpected_reply(&reply)) };
        if !view.status.is_open() {
            sent.state =
                Some(format!("{} done, {} failed, {} cancelled", view.done, view.failed, view.cancelled));
            return Ok(view.failed + view.cancelled == 0);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
