//! `submit --job`: submits scripts with dependencies, as one batch.

use std::collections::BTreeMap;
use std::path::Path;

use longshore::{BatchId, UnitId, UnitState};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{
    ArrayItems, ClientRequest, Items, JobSubmission, NewTask, ServerReply, SubmitConditions, UnitQuery,
};
use serde::Serialize;

use super::dispatch::{connect, unexpected_reply};
use super::submit_script::{ScriptContext, submission, wait_for_batch, warn_if_unfit};
use super::wait::with_wait_limit;
use crate::args::submit::SubmitArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::jobfile::{self, JobPlan};
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Maximum dependencies in one job: an array that depends on an array has as many as the product of
/// their sizes.
const MAX_DEPENDENCIES: u64 = 100_000;
/// Units per page.
const PAGE: u32 = 1000;
/// Largest job of which the ends are counted task by task.
const MAX_COUNTED: u64 = 20_000;

/// Runs the command.
pub async fn run(file: &Path, typed: &SubmitArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let job = jobfile::read(file)?;
    let submission = job_submission(&job, typed.wait, settings)?;
    let mut client = connect(&typed.script.pool, settings).await?;
    let reply = client.request(&ClientRequest::SubmitJob(Box::new(submission))).await?;
    let ServerReply::JobSubmitted { batch, number, tasks } = reply else {
        return Err(unexpected_reply(&reply));
    };
    let mut sent = Vec::with_capacity(tasks.len());
    for (task, planned) in tasks.into_iter().zip(&job.tasks) {
        warn_if_unfit(&task.unfit, &format!("task `{}`", task.id), settings);
        let is_array = planned.call.array.is_some() || planned.call.each_line.is_some();
        let unit = (!is_array).then_some(task.first);
        let (batch, units) = (batch.clone(), task.units);
        sent.push(SubmittedTask { task: task.id, unit, batch, number, units, state: None });
    }
    settings.output.note(format!("job {batch} is batch {number}, with {} tasks", sent.len()));
    if !typed.wait {
        settings.output.list(&sent, || table(&sent))?;
        return Ok(ExitCode::Good);
    }
    let waiting = wait_for_batch(&mut client, &batch, typed.script.progress, settings);
    let hint = format!("it continues; `longshore batch status {batch}` shows it");
    let ended = with_wait_limit(typed.wait_limit, &hint, waiting).await?;
    if ended.counts.total() <= MAX_COUNTED {
        add_ends(&mut client, &batch, &mut sent, settings).await?;
    }
    settings.output.list(&sent, || table(&sent))?;
    let good = ended.counts.failed + ended.counts.cancelled == 0;
    Ok(if good { ExitCode::Good } else { ExitCode::Failures })
}

/// A submitted task.
#[derive(Serialize)]
struct SubmittedTask {
    task: String,
    unit: Option<UnitId>,
    batch: BatchId,
    number: u64,
    units: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

fn table(sent: &[SubmittedTask]) -> Table {
    let heading = [cell("task"), right("scripts"), cell("state"), cell("named")];
    let mut table = Table::new(heading, "no tasks");
    for sent in sent {
        table.row([
            cell(&sent.task),
            right(sent.units),
            cell(sent.state.as_deref().unwrap_or("sent")),
            cell(format!("{}.{}", sent.number, sent.task)),
        ]);
    }
    table
}

/// The request to the server. All scripts are checked before it is sent.
fn job_submission(job: &JobPlan, awaited: bool, settings: &Settings) -> anyhow::Result<JobSubmission> {
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut units, mut edges) = (Vec::new(), 0_u64);
    let mut tasks = Vec::with_capacity(job.tasks.len());
    for (position, task) in job.tasks.iter().enumerate() {
        let context = ScriptContext {
            dir: &job.dir,
            priority: task.priority,
            slots: 1,
            resources: task.resources.clone(),
            after: Vec::new(),
            awaited,
            conditions: SubmitConditions::default(),
        };
        let submission = submission(&task.call, context, settings);
        let submission = submission.map_err(|error| error.context(format!("task `{}`", task.id)))?;
        let own = match &submission.items {
            Items::Once(_) => 1,
            Items::Each { items, .. } => ArrayItems::count(items),
        };
        let after: Vec<usize> =
            task.after.iter().filter_map(|id| positions.get(id.as_str()).copied()).collect();
        let waits: u64 = after.iter().map(|after| units[*after]).sum();
        if waits > longshore::unit::MAX_DEPENDENCIES as u64 {
            let most = longshore::unit::MAX_DEPENDENCIES;
            let words = format!("task `{}` waits for {waits} scripts, of {most} at most", task.id);
            return Err(usage(words)).hint("split the array, and put a small task after each part");
        }
        edges = edges.saturating_add(waits.saturating_mul(own));
        if edges > MAX_DEPENDENCIES {
            let words = format!("task `{}` exceeds the limit of {MAX_DEPENDENCIES} dependencies", task.id);
            return Err(usage(words)).hint("put one small task between two large arrays");
        }
        positions.insert(&task.id, position);
        units.push(own);
        tasks.push(NewTask { id: task.id.clone(), after, submission });
    }
    let name = BatchId::new(&job.name).hint("a job is named by `name`, or after its file")?;
    Ok(JobSubmission { name, max_failures: job.max_fails, tasks })
}

/// Counts the ends of each task's scripts.
async fn add_ends(
    client: &mut DispatchClient,
    batch: &BatchId,
    sent: &mut [SubmittedTask],
    settings: &Settings,
) -> anyhow::Result<()> {
    let mut ends: BTreeMap<String, BTreeMap<UnitState, u64>> = BTreeMap::new();
    let mut after = None;
    loop {
        let query = UnitQuery { state: None, batch: Some(batch.clone()), after, limit: PAGE };
        let reply = client.request(&ClientRequest::Units(settings.tenant.clone(), query)).await?;
        let ServerReply::Units(page, next) = reply else { return Err(unexpected_reply(&reply)) };
        for unit in page {
            *ends.entry(unit.task.unwrap_or_default()).or_default().entry(unit.state).or_default() += 1;
        }
        after = next;
        if after.is_none() {
            break;
        }
    }
    for sent in sent {
        let Some(ends) = ends.get(&sent.task) else { continue };
        let words = match sent.unit {
            Some(_) => ends.keys().map(ToString::to_string).collect(),
            None => ends.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>(),
        };
        sent.state = Some(words.join(", "));
    }
    Ok(())
}
