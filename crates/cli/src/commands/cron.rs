//! `cron`: lists, fires and controls schedules. `cron/add.rs` adds one.

mod add;
mod show;
mod times;

use anyhow::Context;
use longshore::schedule::{Schedule, ScheduleStep};
use longshore::store::{FireResult, Firing, ScheduleFilter, ScheduleSwitch, SendResult};
use longshore::{ScheduleName, Scope, Store, TenantId, Timestamp, UnitId};
use serde::Serialize;

use super::{connect, now};
use crate::args::cron::{CronCommand as Typed, CronNextArgs};
use crate::args::unit_worker::PageArgs;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;

use times::parse_times;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Typed::Add(typed) => add::run(*typed, settings).await?,
        Typed::List { page, .. } => list(&page, settings).await?,
        Typed::Show(typed) => {
            let schedule = ScheduleStore::open(settings).await?.find(&typed.name).await?;
            show::print_one(&schedule, settings)?;
        }
        Typed::Next(typed) => next(typed, settings).await?,
        Typed::Pause(typed) => {
            let schedules = ScheduleStore::open(settings).await?;
            let schedule = schedules.switch(&typed.name, ScheduleSwitch::Pause).await?;
            show::print_state(&schedule, settings)?;
        }
        Typed::Resume(typed) => resume(&typed.name, settings).await?,
        Typed::Remove(typed) => remove(&typed.name, settings).await?,
        Typed::Fire(typed) => fire(&typed.name, settings).await?,
    }
    Ok(ExitCode::Good)
}

/// The schedules of the settings' tenant.
struct ScheduleStore {
    store: std::sync::Arc<dyn Store>,
    scope: Scope,
    tenant: TenantId,
}

impl ScheduleStore {
    async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let (store, _) = connect(settings).await?;
        let tenant = settings.tenant.clone().unwrap_or_default();
        Ok(Self { store, scope: settings.scope(), tenant })
    }

    async fn find(&self, name: &ScheduleName) -> anyhow::Result<Schedule> {
        let found = self.store.schedule(&self.scope, &self.tenant, name).await;
        found.hint(self.where_else())
    }

    async fn switch(&self, name: &ScheduleName, switch: ScheduleSwitch) -> anyhow::Result<Schedule> {
        let switched = self.store.switch_schedule(&self.scope, &self.tenant, name, switch).await;
        switched.hint(self.where_else())
    }

    fn where_else(&self) -> String {
        let tenant = &self.tenant;
        format!("`longshore cron list` shows the schedules; searched those of tenant `{tenant}`")
    }
}

async fn list(page: &PageArgs, settings: &Settings) -> anyhow::Result<()> {
    let (store, _) = connect(settings).await?;
    let (scope, all) = (settings.scope(), ScheduleFilter::All);
    let found = store.schedules(&scope, &all, page.after.as_deref(), page.limit).await?.page;
    settings.output.list(&found.items, || show::table(&found.items))?;
    if let Some(next) = found.next {
        settings.output.note(format!("there are more: --after {next}"));
    }
    Ok(())
}

async fn next(typed: CronNextArgs, settings: &Settings) -> anyhow::Result<()> {
    let (times, mut time) = match (&typed.name, &typed.cron) {
        (Some(name), _) => {
            let schedule = ScheduleStore::open(settings).await?.find(name).await?;
            let times = parse_times(&schedule.plan.cron, &schedule.plan.zone)?;
            if schedule.paused {
                settings.output.note("it is paused: these are the times once it is resumed");
            }
            (times, now())
        }
        (None, cron) => (parse_times(cron.as_deref().unwrap_or_default(), &typed.tz)?, now()),
    };
    let mut coming = Vec::new();
    while coming.len() < typed.count as usize
        && let Some(next) = times.next_after(time)
    {
        coming.push(next);
        time = next;
    }
    show::print_times(&coming, &times, settings)
}

async fn resume(name: &ScheduleName, settings: &Settings) -> anyhow::Result<()> {
    let schedules = ScheduleStore::open(settings).await?;
    let schedule = schedules.find(name).await?;
    let times = parse_times(&schedule.plan.cron, &schedule.plan.zone)?;
    let switch = ScheduleSwitch::Resume { next: times.next_after(now()) };
    show::print_state(&schedules.switch(name, switch).await?, settings)
}

async fn remove(name: &ScheduleName, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct RemoveResult<'a> {
        schedule: &'a ScheduleName,
        removed: bool,
    }
    let schedules = ScheduleStore::open(settings).await?;
    schedules.switch(name, ScheduleSwitch::Remove).await?;
    let answer = RemoveResult { schedule: name, removed: true };
    settings.output.answer(&answer, || format!("schedule `{name}` is removed"))
}

/// Fires now, whatever is live. The schedule's next time stays.
async fn fire(name: &ScheduleName, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct FiredUnit<'a> {
        schedule: &'a ScheduleName,
        at: Timestamp,
        unit: UnitId,
    }
    let (schedules, at) = (ScheduleStore::open(settings).await?, now());
    let answers = loop {
        let schedule = schedules.find(name).await?;
        let step = ScheduleStep { at: Some(at), next: schedule.next_fire, ..ScheduleStep::default() };
        let firing = Firing::of(&schedule, step, at);
        match schedules.store.fire_schedule(&schedules.scope, firing).await? {
            FireResult::Committed(answers) => break answers,
            // The schedule fired by itself just now: read it again.
            FireResult::Conflict => {}
            FireResult::Rejected(rejection) => {
                return Err(rejection).context("the schedule cannot fire");
            }
        }
    };
    let Some(SendResult::Created(unit) | SendResult::Existing(unit)) = answers.first().cloned() else {
        anyhow::bail!("the store returned no unit for the firing");
    };
    let answer = FiredUnit { schedule: name, at, unit };
    if settings.output.is_json() {
        return settings.output.json(&answer);
    }
    settings.output.line(unit.to_string())
}
