//! `cron add`: builds a schedule from the arguments, with every check made before it is stored.

use std::path::Path;

use anyhow::Context;
use longshore::schedule::{FiringScope, NewSchedule, SchedulePlan, UnitTemplate};
use longshore::store::{IfExists, PutScheduleResult};
use longshore::{Kind, Payload, Policy, RetryPolicy, TenantId};
use longshore_batch::file::{BatchFile, Overrides};

use super::times::parse_times;
use super::{ScheduleStore, show};
use crate::args::cron::CronAddArgs;
use crate::batch_start::{self, BatchStart};
use crate::commands::batch::context::file_error;
use crate::commands::{now, submit};
use crate::error::{WithHint, usage};
use crate::exec;
use crate::settings::Settings;

/// Adds a schedule.
pub async fn run(typed: CronAddArgs, settings: &Settings) -> anyhow::Result<()> {
    let times = parse_times(&typed.times.cron, &typed.times.tz)?;
    let Some(next) = times.next_after(now()) else {
        let cron = &typed.times.cron;
        return Err(usage(format!("--cron `{cron}`: this expression never fires")))
            .hint("does it name a day that its month does not have, or a past year?");
    };
    let schedules = ScheduleStore::open(settings).await?;
    let new = NewSchedule {
        name: typed.name.clone(),
        tenant: schedules.tenant.clone(),
        plan: plan(&typed, &schedules.tenant, settings)?,
        paused: typed.paused,
        next_fire: Some(next),
    };
    let if_there = if typed.replace { IfExists::Replace } else { IfExists::Keep };
    match schedules.store.put_schedule(&schedules.scope, new.clone(), if_there).await? {
        PutScheduleResult::Created(schedule) | PutScheduleResult::Replaced(schedule) => {
            show::print_state(&schedule, settings)
        }
        // The same command was run before: nothing to change.
        PutScheduleResult::Unchanged(found) if found.plan == new.plan => show::print_state(&found, settings),
        PutScheduleResult::Unchanged(found) => {
            Err(usage(format!("schedule `{}` exists already and differs", found.name)))
                .hint("--replace changes it; `longshore cron show` prints it")
        }
    }
}

fn plan(typed: &CronAddArgs, tenant: &TenantId, settings: &Settings) -> anyhow::Result<SchedulePlan> {
    let mut template = match (&typed.batch, &typed.kind) {
        (Some(file), _) => batch(file, typed, tenant)?,
        (None, Some(kind)) => {
            let payload = submit::payload(typed.payload.as_deref().unwrap_or("-"))?;
            UnitTemplate::new(kind.clone(), payload)
        }
        (None, None) => return Err(usage("--kind or --batch is required")),
    };
    template.queue = typed.queue.clone().unwrap_or_else(|| settings.queue.clone());
    template.priority = typed.priority;
    template.deadline = typed.deadline.map(|span| span.0);
    template.policy = policy(typed, &template.kind);
    Ok(SchedulePlan {
        cron: typed.times.cron.trim().to_owned(),
        zone: typed.times.tz.clone(),
        missed: typed.missed,
        overlap: typed.overlap,
        template,
    })
}

/// A unit that starts a batch file. The file is read now, so that its errors are reported
/// when the schedule is added, and again at each firing.
fn batch(file: &Path, typed: &CronAddArgs, tenant: &TenantId) -> anyhow::Result<UnitTemplate> {
    let (tenant, params) = (Some(tenant.clone()), typed.param.clone());
    let overrides = Overrides { tenant, params: params.clone(), ..Overrides::default() };
    BatchFile::load(file, &overrides).map_err(file_error)?;
    let folder = std::env::current_dir().context("cannot read the current directory")?;
    let start = BatchStart::new(file, &folder, params)?;
    let payload = Payload::json(&start).context("the batch file's path cannot be stored")?;
    let kind = Kind::new(batch_start::KIND)?;
    Ok(UnitTemplate { starts: FiringScope::Batch, ..UnitTemplate::new(kind, payload) })
}

/// The schedule's policy, if it has one; otherwise the kind's applies.
fn policy(typed: &CronAddArgs, kind: &Kind) -> Option<Policy> {
    if typed.max_attempts.is_none() && typed.timeout.is_none() {
        return None;
    }
    // As for `submit`: a command is retried only on request.
    let is_exec = kind.as_str() == exec::KIND;
    let retry = if is_exec { RetryPolicy::never() } else { RetryPolicy::default() };
    let max_attempts = typed.max_attempts.unwrap_or(retry.max_attempts);
    Some(Policy {
        retry: RetryPolicy { max_attempts, ..retry },
        timeout: typed.timeout.map(|span| span.0),
        ..Policy::default()
    })
}
