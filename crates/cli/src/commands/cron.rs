//! `cron`: schedules, when they fire, and steering them. Adding one is in `cron/add.rs`.

mod add;
mod show;
mod times;

use anyhow::Context;
use longshore::schedule::{Schedule, Step};
use longshore::store::{Fired, Firing, ScheduleSwitch, Sent};
use longshore::{ScheduleName, Scope, Store, TenantId, Timestamp, UnitId};
use serde::Serialize;

use super::{connect, now};
use crate::args::cron::{Cron as Typed, Next};
use crate::args::operate::PageArgs;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;

use times::read;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Typed::Add(typed) => add::run(*typed, settings).await?,
        Typed::List { page, .. } => list(&page, settings).await?,
        Typed::Show(typed) => {
            let schedule = Book::open(settings).await?.find(&typed.name).await?;
            show::one(&schedule, settings)?;
        }
        Typed::Next(typed) => next(typed, settings).await?,
        Typed::Pause(typed) => {
            let book = Book::open(settings).await?;
            let schedule = book.switch(&typed.name, ScheduleSwitch::Pause).await?;
            show::state(&schedule, settings)?;
        }
        Typed::Resume(typed) => resume(&typed.name, settings).await?,
        Typed::Remove(typed) => remove(&typed.name, settings).await?,
        Typed::Fire(typed) => fire(&typed.name, settings).await?,
    }
    Ok(ExitCode::Good)
}

/// The schedules of the tenant that the settings name.
struct Book {
    store: std::sync::Arc<dyn Store>,
    scope: Scope,
    tenant: TenantId,
}

impl Book {
    async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let (store, _) = connect(settings).await?;
        let tenant = settings.tenant.clone().unwrap_or_default();
        Ok(Self { store, scope: settings.scope(), tenant })
    }

    async fn find(&self, name: &ScheduleName) -> anyhow::Result<Schedule> {
        let found = self.store.schedule(&self.scope, &self.tenant, name).await;
        found.hint(self.where_else())
    }

    async fn switch(
        &self,
        name: &ScheduleName,
        switch: ScheduleSwitch,
    ) -> anyhow::Result<Schedule> {
        let switched = self.store.switch_schedule(&self.scope, &self.tenant, name, switch).await;
        switched.hint(self.where_else())
    }

    fn where_else(&self) -> String {
        let tenant = &self.tenant;
        format!(
            "`longshore cron list` shows the schedules; looked among those of tenant `{tenant}`"
        )
    }
}

async fn list(page: &PageArgs, settings: &Settings) -> anyhow::Result<()> {
    let (store, _) = connect(settings).await?;
    let found = store.schedules(&settings.scope(), page.after.as_deref(), page.limit).await?;
    settings.output.list(&found.items, || show::table(&found.items))?;
    if let Some(next) = found.next {
        settings.output.note(format!("there are more: --after {next}"));
    }
    Ok(())
}

async fn next(typed: Next, settings: &Settings) -> anyhow::Result<()> {
    let (times, mut time) = match (&typed.name, &typed.cron) {
        (Some(name), _) => {
            let schedule = Book::open(settings).await?.find(name).await?;
            let times = read(&schedule.plan.cron, &schedule.plan.zone)?;
            if schedule.paused {
                settings.output.note("it is paused: these are the times once it is resumed");
            }
            (times, now())
        }
        (None, cron) => (read(cron.as_deref().unwrap_or_default(), &typed.tz)?, now()),
    };
    let mut coming = Vec::new();
    while coming.len() < typed.count as usize
        && let Some(next) = times.after(time)
    {
        coming.push(next);
        time = next;
    }
    show::coming(&coming, &times, settings)
}

async fn resume(name: &ScheduleName, settings: &Settings) -> anyhow::Result<()> {
    let book = Book::open(settings).await?;
    let schedule = book.find(name).await?;
    let times = read(&schedule.plan.cron, &schedule.plan.zone)?;
    let switch = ScheduleSwitch::Resume { next: times.after(now()) };
    show::state(&book.switch(name, switch).await?, settings)
}

async fn remove(name: &ScheduleName, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schedule: &'a ScheduleName,
        removed: bool,
    }
    let book = Book::open(settings).await?;
    let removed = book.store.remove_schedule(&book.scope, &book.tenant, name).await;
    removed.hint(book.where_else())?;
    let answer = Answer { schedule: name, removed: true };
    settings.output.answer(&answer, || format!("schedule `{name}` is removed"))
}

/// Fires now, whatever is live. The schedule's next time stays.
async fn fire(name: &ScheduleName, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schedule: &'a ScheduleName,
        at: Timestamp,
        unit: UnitId,
    }
    let (book, at) = (Book::open(settings).await?, now());
    let answers = loop {
        let schedule = book.find(name).await?;
        let step = Step { at: Some(at), next: schedule.next_fire, ..Step::default() };
        let firing = Firing::of(&schedule, step, at);
        match book.store.fire_schedule(&book.scope, firing).await? {
            Fired::Committed(answers) => break answers,
            // It fired by itself just now: look again.
            Fired::Moved => {}
            Fired::Refused(refusal) => return Err(refusal).context("the schedule cannot fire"),
        }
    };
    let Some(Sent::Created(unit) | Sent::Existing(unit)) = answers.first().cloned() else {
        anyhow::bail!("the store gave no answer");
    };
    let answer = Answer { schedule: name, at, unit };
    if settings.output.is_json() {
        return settings.output.json(&answer);
    }
    settings.output.line(unit.to_string())
}
