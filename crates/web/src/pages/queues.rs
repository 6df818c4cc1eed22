//! `/queues`: every lane of every queue.

use longshore::ledger::Role;
use longshore::store::QueueInfo;
use maud::{Markup, html};

use super::Visit;
use super::frame::{button, frame, pill, sheet};
use super::words::{number, span};
use crate::problem::Problem;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    let lanes = visit.house.store.queues(&visit.caller.scope).await?;
    let main = html! {
        h1 { "Queues" }
        (table(visit, &lanes))
    };
    Ok(frame(&visit.caller, "/queues", "Queues", main))
}

/// Lanes with what stands in them.
pub(super) fn table(visit: &Visit, lanes: &[QueueInfo]) -> Markup {
    let now = visit.house.now();
    let nothing = html! {
        "No queues: one appears with its first unit." br;
        code { "longshore submit exec '{\"argv\":[\"date\"]}'" }
    };
    let operates = visit.caller.role >= Role::Operate;
    sheet(
        lanes.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Queue" } th.less { "Tenant" } th { "State" } th.n { "Ready" }
                    th.n { "Running" } th.n.less { "Later" } th.n { "Failed" } th.n.less { "Done" }
                    th.n.less { "Room" } th.n { "Oldest waits" } @if operates { th { "" } }
                } }
                tbody { @for lane in lanes {
                    tr {
                        td.wide { (lane.queue) }
                        td.less { (lane.tenant) }
                        td { (pill(state(lane))) }
                        td.n { (number(lane.counts.ready)) }
                        td.n { (number(lane.counts.leased)) }
                        td.n.less { (number(lane.counts.scheduled + lane.counts.blocked)) }
                        td.n { (number(lane.counts.failed)) }
                        td.n.less { (number(lane.counts.done)) }
                        td.n.less { (lane.capacity.units.map_or("∞".to_owned(), number)) }
                        td.n { (lane.oldest_ready.map_or(String::new(), |then| span(now.since(then)))) }
                        @if operates { td { (switch(lane)) } }
                    }
                } }
            }
        },
    )
}

fn state(lane: &QueueInfo) -> &'static str {
    match (lane.suspended, lane.paused) {
        (true, _) => "suspended",
        (false, true) => "paused",
        (false, false) => "open",
    }
}

fn switch(lane: &QueueInfo) -> Markup {
    let queue = lane.queue.as_str().replace('/', "%2F");
    match lane.paused {
        true => button(&format!("/queues/{queue}/resume"), "Resume", None),
        false => button(&format!("/queues/{queue}/pause"), "Pause", None),
    }
}
