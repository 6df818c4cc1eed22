//! `dispatch alloc`: kinds of workers of one pool.

use longshore::{ResourceAmount, duration};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::launch::Allocation;
use longshore_dispatch::request::{
    AllocationAction, AllocationChange, AllocationStatus, ClientRequest, ServerReply,
};
use longshore_dispatch::scheduler::{amount, label};

use super::serve::worker_resources;
use super::{ask_status, connect, unexpected_reply};
use crate::args::dispatch::{AllocAddArgs, AllocArgs, AllocCommand, AllocRemoveArgs};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: AllocCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        AllocCommand::Add(typed) => add(*typed, settings).await,
        AllocCommand::List(pool) => {
            let all = statuses(&mut connect(&pool, settings).await?).await?;
            settings.output.list(&all, || table(&all))?;
            Ok(ExitCode::Good)
        }
        AllocCommand::Pause(typed) => change(typed, AllocationAction::Pause, "is paused", settings).await,
        AllocCommand::Resume(typed) => change(typed, AllocationAction::Resume, "is resumed", settings).await,
        AllocCommand::Remove(typed) => remove(typed, settings).await,
    }
}

async fn statuses(client: &mut DispatchClient) -> anyhow::Result<Vec<AllocationStatus>> {
    match client.request(&ClientRequest::Allocations).await? {
        ServerReply::Allocations(all) => Ok(all),
        other => Err(unexpected_reply(&other)),
    }
}

async fn add(typed: AllocAddArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut client = connect(&typed.pool, settings).await?;
    let status = ask_status(&mut client).await?;
    let base = match typed.qsys {
        Some(qsys) => qsys.base,
        None => status.base.parse()?,
    };
    let min = typed.workers.unwrap_or(u32::from(typed.max_workers.is_none()));
    let max = typed.max_workers.unwrap_or(min);
    if max < min {
        return Err(usage(format!("the maximum of {max} workers is below the minimum of {min}")))
            .hint("--workers is the minimum");
    }
    let allocation = Allocation {
        name: typed.name.clone(),
        base,
        min,
        max,
        threads: typed.nthr.unwrap_or(status.threads),
        resources: worker_resources(&typed.resource, typed.mem)?,
        time: typed.time,
        idle: typed.idle,
        drain: typed.drain_timeout,
        options: typed.options,
        paused: false,
    };
    let request = ClientRequest::AddAllocation(Box::new(allocation.clone()), typed.dry_run);
    let script = match client.request(&request).await? {
        ServerReply::JobScript(script) => script,
        other => return Err(unexpected_reply(&other)),
    };
    let answer = serde_json::json!({ "allocation": allocation, "job": script, "added": !typed.dry_run });
    settings.output.answer(&answer, || match typed.dry_run {
        true => script.trim_end().to_owned(),
        false => format!("{} is added: {} to {} workers by {}", typed.name, min, max, base),
    })?;
    Ok(ExitCode::Good)
}

async fn change(
    typed: AllocArgs,
    action: AllocationAction,
    word: &str,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let AllocArgs { name, pool } = typed;
    let change = AllocationChange { name: name.clone(), action };
    connect(&pool, settings).await?.request(&ClientRequest::ChangeAllocation(change)).await?;
    settings.output.answer(&serde_json::json!({ "allocation": name }), || format!("{name} {word}"))?;
    Ok(ExitCode::Good)
}

async fn remove(typed: AllocRemoveArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let AllocRemoveArgs { allocation, drain_timeout, dry_run } = typed;
    if !dry_run {
        let action = AllocationAction::Remove { drain: drain_timeout.0 };
        return change(allocation, action, "is removed when its workers have left", settings).await;
    }
    let AllocArgs { name, pool } = allocation;
    let all = statuses(&mut connect(&pool, settings).await?).await?;
    let Some(status) = all.iter().find(|status| status.allocation.name == name) else {
        return Err(anyhow::anyhow!("there is no allocation `{name}`"))
            .hint("`dispatch alloc list` lists them");
    };
    let (workers, jobs) = (status.explanation.registered, status.explanation.pending.len());
    let answer = serde_json::json!({ "allocation": name, "workers": workers, "pending": jobs });
    settings
        .output
        .answer(&answer, || format!("{workers} workers would leave, {jobs} jobs would be cancelled"))?;
    Ok(ExitCode::Good)
}

fn table(all: &[AllocationStatus]) -> Table {
    let heading = [
        cell("allocation"),
        cell("by"),
        cell("state"),
        right("workers"),
        right("wanted"),
        right("pending"),
        cell("number"),
        right("threads"),
        cell("resources"),
        cell("options"),
    ];
    let mut table = Table::new(heading, "no allocations");
    for AllocationStatus { allocation, is_leaving, explanation } in all {
        let Allocation { min, max, .. } = allocation;
        let resources = allocation.resources.iter();
        let resources = resources.map(|(name, number)| {
            format!("{} {}", label(name), amount(name, ResourceAmount::whole(*number)))
        });
        let life = allocation.time.map(|time| duration::format(time.0));
        table.row([
            cell(&allocation.name),
            cell(allocation.base),
            cell(match (is_leaving, allocation.paused) {
                (true, _) => "leaving",
                (false, true) => "paused",
                (false, false) => "active",
            }),
            right(explanation.registered),
            right(explanation.wanted),
            right(explanation.pending.len()),
            cell(if min == max { min.to_string() } else { format!("{min} to {max}") }),
            right(allocation.threads),
            cell(resources.chain(life).collect::<Vec<_>>().join(", ")),
            cell(allocation.options.join(" ")),
        ]);
    }
    table
}
