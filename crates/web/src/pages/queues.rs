//! `/queues`: every lane of every queue.

use longshore::Scope;
use longshore::ledger::Role;
use longshore::store::QueueInfo;
use maud::{Markup, html};

use super::Visit;
use super::batches::query;
use super::frame::{button, frame, pill, sheet};
use super::words::{number, span};
use crate::Trend;
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
                        td.wide {
                            a href={ "/units?queue=" (query(lane.queue.as_str())) } { (lane.queue) }
                            span class="more soft" { (lane.tenant) }
                        }
                        td.less.name title=(lane.tenant) { (lane.tenant) }
                        td { (pill(state(lane))) " " @if let Some(trend) = trend(visit, lane).filter(|_| !lane.paused) {
                            span class={ "trend " (trend.as_str()) } { (trend.as_str()) }
                        } }
                        td.n { (number(lane.counts.ready)) }
                        td.n { (number(lane.counts.leased)) }
                        td.n.less { (number(lane.counts.scheduled + lane.counts.blocked)) }
                        td.n { (number(lane.counts.failed)) }
                        td.n.less { (number(lane.counts.done)) }
                        td.n.less { (lane.capacity.units.map_or("∞".to_owned(), number)) }
                        td.n { (lane.oldest_ready.map_or(String::new(), |then| span(now.since(then)))) }
                        @if operates { td { (switch(visit, lane, lanes)) } }
                    }
                } }
            }
        },
    )
}

fn state(lane: &QueueInfo) -> &'static str {
    match (lane.suspended, lane.queue_paused, lane.lane_paused) {
        (true, _, _) => "suspended",
        (false, true, _) if lane.queue.owner().is_none() => "queue paused",
        (false, true, _) | (false, _, true) => "paused",
        (false, false, false) => "open",
    }
}

/// How a lane gets on, as far as it was watched.
pub(super) fn trend(visit: &Visit, lane: &QueueInfo) -> Option<Trend> {
    visit.house.history.trend(&lane.queue, &lane.tenant)
}

/// A row is a lane, and its button is for that lane; of a tenant's own queue, the queue.
fn switch(visit: &Visit, lane: &QueueInfo, lanes: &[QueueInfo]) -> Markup {
    let queue = lane.queue.as_str().replace('/', "%2F");
    let lane_of = match visit.caller.scope {
        Scope::All => format!("?tenant={}", query(lane.tenant.as_str())),
        Scope::Tenant(_) => String::new(),
    };
    let to = |verb: &str, of: &str| format!("/queues/{queue}/{verb}{of}");
    // A tenant's own queue has one lane: there the two are the same.
    let is_whole = lane.queue.owner().is_some();
    html! {
        div.deeds {
            @match if is_whole { lane.paused } else { lane.lane_paused } {
                true => (button(&to("resume", &lane_of), "Resume", None)),
                false => (button(&to("pause", &lane_of), "Pause", None)),
            }
            // All of a queue is another thing than its one lane only where there are several.
            @let is_one = lanes.iter().filter(|one| one.queue == lane.queue).count() < 2;
            @if visit.caller.scope == Scope::All && !is_whole && (lane.queue_paused || !is_one) {
                @match lane.queue_paused {
                    true => (button(&to("resume", ""), "Resume queue", None)),
                    false => (button(&to("pause", ""), "Pause queue", None)),
                }
            }
        }
    }
}
