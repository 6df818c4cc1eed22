//! `/queues`: every lane of every queue.

use std::collections::HashMap;

use longshore::accounts::Role;
use longshore::store::QueueInfo;
use longshore::{QueueName, Scope};
use maud::{Markup, html};

use super::PageRequest;
use super::batches::query;
use super::format::{duration, number};
use super::layout::{button, layout, pill, table_or_empty};
use crate::Trend;
use crate::api::queues::lane_key;
use crate::problem::Problem;
use crate::request_context::page_of;

/// Lanes per page.
const PAGE: u32 = 200;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let lanes = req.app.store.queues(&req.caller.scope).await?;
    let found = page_of(lanes, req.query.get("after").map(String::as_str), PAGE, lane_key);
    let main = html! {
        h1 { "Queues" }
        (table(req, &found.items))
        @if let Some(next) = found.next {
            p { a href={ "/queues?after=" (query(&next)) } rel="next" { "More" } }
        }
    };
    Ok(layout(&req.caller, "/queues", "Queues", main))
}

/// A table of lanes with their counts.
pub(super) fn table(req: &PageRequest, lanes: &[QueueInfo]) -> Markup {
    let now = req.app.now();
    let nothing = html! {
        "No queues: one appears with its first unit." br;
        code { "longshore submit exec '{\"argv\":[\"date\"]}'" }
    };
    let can_operate = req.caller.role >= Role::Operate;
    let mut lanes_of: HashMap<&QueueName, usize> = HashMap::new();
    lanes.iter().for_each(|lane| *lanes_of.entry(&lane.queue).or_default() += 1);
    table_or_empty(
        lanes.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Queue" } th.less { "Tenant" } th { "State" } th.n { "Ready" }
                    th.n { "Running" } th.n.less { "Later" } th.n { "Failed" } th.n.less { "Done" }
                    th.n.less { "Room" } th.n { "Oldest waits" } @if can_operate { th { "" } }
                } }
                tbody { @for lane in lanes {
                    tr {
                        td.wide {
                            a href={ "/units?queue=" (query(lane.queue.as_str())) } { (lane.queue) }
                            span class="more soft" { (lane.tenant) }
                        }
                        td.less.name title=(lane.tenant) { (lane.tenant) }
                        td { (pill(state(lane))) " " @if let Some(trend) = trend(req, lane).filter(|_| !lane.paused) {
                            span class={ "trend " (trend.as_str()) } { (trend.as_str()) }
                        } }
                        td.n { (number(lane.counts.ready)) }
                        td.n { (number(lane.counts.leased)) }
                        td.n.less { (number(lane.counts.scheduled + lane.counts.blocked)) }
                        td.n { (number(lane.counts.failed)) }
                        td.n.less { (number(lane.counts.done)) }
                        td.n.less { (lane.capacity.units.map_or("∞".to_owned(), number)) }
                        td.n { (lane.oldest_ready.map_or(String::new(), |then| duration(now.since(then)))) }
                        @if can_operate { td { (pause_buttons(req, lane, lanes_of[&lane.queue] > 1)) } }
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

/// The trend of a lane, if there are enough samples.
pub(super) fn trend(req: &PageRequest, lane: &QueueInfo) -> Option<Trend> {
    req.app.timeseries.trend(&lane.queue, &lane.tenant)
}

/// The pause and resume buttons of a lane; of a tenant's own queue, for the queue.
fn pause_buttons(req: &PageRequest, lane: &QueueInfo, has_others: bool) -> Markup {
    let queue = lane.queue.as_str().replace('/', "%2F");
    let lane_of = match req.caller.scope {
        Scope::All => format!("?tenant={}", query(lane.tenant.as_str())),
        Scope::Tenant(_) => String::new(),
    };
    let to = |verb: &str, of: &str| format!("/queues/{queue}/{verb}{of}");
    // A tenant's own queue has one lane, so the two are the same.
    let is_whole = lane.queue.owner().is_some();
    html! {
        div.actions {
            @match if is_whole { lane.paused } else { lane.lane_paused } {
                true => (button(&to("resume", &lane_of), "Resume", None)),
                false => (button(&to("pause", &lane_of), "Pause", None)),
            }
            // Offer the whole queue only if it has several lanes.
            @if req.caller.scope == Scope::All && !is_whole && (lane.queue_paused || has_others) {
                @match lane.queue_paused {
                    true => (button(&to("resume", ""), "Resume queue", None)),
                    false => (button(&to("pause", ""), "Pause queue", None)),
                }
            }
        }
    }
}
