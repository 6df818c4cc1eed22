//! `/cron`: schedules.

use longshore::Schedule;
use longshore::store::ScheduleFilter;
use maud::{Markup, html};

use super::PageRequest;
use super::batches::query;
use super::format::{ago, duration, number};
use super::layout::{layout, pill, table_or_empty};
use crate::problem::Problem;

const PAGE: u32 = 100;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let after = req.query.get("after").map(String::as_str);
    let (scope, all) = (&req.caller.scope, ScheduleFilter::All);
    let found = req.app.store.schedules(scope, &all, after, PAGE).await?.page;
    let main = html! {
        h1 { "Cron" }
        (table(req, &found.items))
        @if let Some(next) = found.next {
            p { a href={ "/cron?after=" (query(&next)) } rel="next" { "More" } }
        }
    };
    Ok(layout(&req.caller, "/cron", "Cron", main))
}

fn table(req: &PageRequest, schedules: &[Schedule]) -> Markup {
    let now = req.app.now();
    let nothing = html! {
        "No schedules." br;
        code { "longshore cron add nightly --cron '0 2 * * *' --kind exec --payload '{\"argv\":[\"date\"]}'" }
    };
    table_or_empty(
        schedules.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Schedule" } th.less { "Tenant" } th { "State" } th { "Times" } th { "Next" }
                    th.less { "Last" } th { "Sends" } th.n.less { "Fired" } th.n.less { "Left out" }
                } }
                tbody { @for schedule in schedules {
                    tr {
                        td.wide { (schedule.name) }
                        td.less.name title=(schedule.tenant) { (schedule.tenant) }
                        td { (pill(if schedule.paused { "paused" } else { "open" })) }
                        td { code { (schedule.plan.cron) } " " span.soft { (schedule.plan.zone) } }
                        td { (next(schedule, now)) }
                        td.less { (schedule.last_fire.map_or("never".to_owned(), |then| ago(then, now))) }
                        td { (schedule.plan.template.kind) " → " (schedule.plan.template.queue) }
                        td.n.less { (number(schedule.fired)) }
                        td.n.less { (number(schedule.skipped + schedule.missed_times)) }
                    }
                } }
            }
        },
    )
}

fn next(schedule: &Schedule, now: longshore::Timestamp) -> Markup {
    html! {
        @match schedule.next_fire {
            _ if schedule.paused => "",
            None => "never again",
            Some(then) if then <= now => "due",
            Some(then) => span title=(then) { "in " (duration(then.since(now))) },
        }
    }
}
