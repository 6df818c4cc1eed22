//! Prints schedules.

use longshore::duration::format_ago;
use longshore::schedule::{FiringScope, Schedule};
use longshore::{CronSchedule, Timestamp};
use serde::Serialize;

use crate::commands::now;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Schedules, one line each.
pub fn table(schedules: &[Schedule]) -> Table {
    let [fired, skipped, missed] = ["fired", "skipped", "missed"].map(right);
    let heading = [
        cell("name"),
        cell("tenant"),
        cell("cron"),
        cell("zone"),
        cell("starts"),
        cell("next"),
        cell("last"),
        fired,
        skipped,
        missed,
    ];
    let mut table = Table::new(heading, "no schedules");
    let now = now();
    for schedule in schedules {
        table.row([
            cell(&schedule.name),
            cell(&schedule.tenant),
            cell(&schedule.plan.cron),
            cell(&schedule.plan.zone),
            cell(describe_start(schedule)),
            cell(describe_next(schedule, now)),
            cell(schedule.last_fire.map_or("never".to_owned(), |time| format_ago(time, now))),
            right(schedule.fired),
            right(schedule.skipped),
            right(schedule.missed_times),
        ]);
    }
    table
}

/// One schedule in full.
pub fn print_one(schedule: &Schedule, settings: &Settings) -> anyhow::Result<()> {
    settings.output.record(schedule, || {
        let (plan, template, now) = (&schedule.plan, &schedule.plan.template, now());
        let times = CronSchedule::new(&plan.cron, &plan.zone).ok();
        let local =
            |time: Timestamp| times.as_ref().map_or_else(|| time.to_string(), |times| times.local(time));
        let mut table = Table::record();
        table.field("name", &schedule.name);
        table.field("tenant", &schedule.tenant);
        table.field("cron", &plan.cron);
        table.field("zone", &plan.zone);
        table.field("means", times.as_ref().map_or(String::new(), CronSchedule::describe));
        table.field("starts", describe_start(schedule));
        table.field("queue", &template.queue);
        table.field("priority", template.priority);
        table.field("payload", String::from_utf8_lossy(template.payload.as_bytes()));
        table.field("missed", plan.missed);
        table.field("overlap", plan.overlap);
        table.field("next", schedule.next_fire.map_or(String::new(), local));
        table.field("", describe_next(schedule, now));
        table.field("last", schedule.last_fire.map_or("never".to_owned(), local));
        table.field("fired", schedule.fired);
        table.field("skipped", schedule.skipped);
        table.field("missed times", schedule.missed_times);
        table.field("added", format_ago(schedule.created_at, now));
        table
    })
}

/// What it starts, in short.
fn describe_start(schedule: &Schedule) -> String {
    let template = &schedule.plan.template;
    let file = || template.payload.parse::<serde_json::Value>().ok()?["file"].as_str().map(str::to_owned);
    match template.starts {
        FiringScope::Unit => template.kind.to_string(),
        FiringScope::Batch => format!("batch {}", file().unwrap_or_default()),
    }
}

fn describe_next(schedule: &Schedule, now: Timestamp) -> String {
    match schedule.next_fire {
        _ if schedule.paused => "paused".to_owned(),
        Some(time) if time <= now => "due".to_owned(),
        Some(time) => format_ago(time, now),
        None => "never".to_owned(),
    }
}

/// Prints the state of a schedule after it was added or changed.
pub fn print_state(schedule: &Schedule, settings: &Settings) -> anyhow::Result<()> {
    settings.output.answer(schedule, || {
        let name = &schedule.name;
        let times = CronSchedule::new(&schedule.plan.cron, &schedule.plan.zone);
        match (schedule.next_fire, times) {
            _ if schedule.paused => format!("schedule `{name}` is paused"),
            (Some(next), Ok(times)) => {
                format!("schedule `{name}` fires next at {}", times.local(next))
            }
            _ => format!("schedule `{name}` does not fire again"),
        }
    })
}

/// Prints the coming times, in the schedule's zone.
pub fn print_times(coming: &[Timestamp], times: &CronSchedule, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Time {
        at: Timestamp,
        local: String,
    }
    let listed: Vec<Time> = coming.iter().map(|at| Time { at: *at, local: times.local(*at) }).collect();
    settings.output.list(&listed, || {
        let mut table = Table::new([cell("time"), cell("from now")], "it never fires");
        let now = now();
        for time in &listed {
            table.row([cell(&time.local), cell(format_ago(time.at, now))]);
        }
        table
    })
}
