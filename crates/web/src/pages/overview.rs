//! `/`: how it all stands.

use longshore::Scope;
use longshore::store::Queues;
use maud::{Markup, html};

use super::frame::frame;
use super::words::{number, span};
use super::{Visit, batches, queues};
use crate::problem::Problem;

/// Batches shown here; the rest is on their page.
const NEWEST: u32 = 8;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    let (store, scope) = (&visit.house.store, &visit.caller.scope);
    let totals = store.totals(scope, &Queues::All).await?;
    let lanes = store.queues(scope).await?;
    let found = store.batches(scope, None, None, NEWEST).await?.items;
    let counts = totals.counts;
    let now = visit.house.now();
    let oldest = lanes.iter().filter_map(|lane| lane.oldest_ready).min();
    let paused = lanes.iter().filter(|lane| lane.paused).count() as u64;
    let tile = |name: &str, value: String, class: Option<&str>| {
        html! { div class={ "tile " (class.unwrap_or_default()) } { b { (value) } span { (name) } } }
    };
    let main = html! {
        h1 { "Overview" }
        div.tiles {
            (tile("ready", number(counts.ready), None))
            (tile("running", number(counts.leased), None))
            (tile("to come later", number(counts.scheduled + counts.blocked), None))
            (tile("failed", number(counts.failed), (counts.failed > 0).then_some("bad")))
            (tile("done", number(counts.done), None))
            @if *scope == Scope::All { (tile("workers", number(totals.sessions), None)) }
        }
        @if *scope == Scope::All && totals.sessions == 0 && counts.ready > 0 {
            p.said { "Nobody works: there is no worker for what is ready. Start one with "
                code { "longshore worker" } "." }
        }
        @if paused > 0 {
            p.said { (number(paused)) " paused " (if paused == 1 { "lane" } else { "lanes" })
                ": what waits there is not taken. " a href="/queues" { "Queues" } }
        }
        @if let Some(oldest) = oldest {
            p { "The oldest ready unit has waited for " (span(now.since(oldest))) "." }
        }
        h2 { "Newest batches" }
        (batches::table(visit, found))
        h2 { "Queues" }
        (queues::table(visit, &lanes))
    };
    Ok(frame(&visit.caller, "/", "Overview", main))
}
