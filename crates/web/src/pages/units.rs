//! `/units`: units, found by what is indexed: state, queue, kind, batch, tenant, or id.

use longshore::store::UnitFilter;
use longshore::{Scope, TenantId, Unit, UnitId, UnitState};
use maud::{Markup, html};

use super::Visit;
use super::batches::query;
use super::frame::{frame, pill, sheet};
use super::words::ago;
use crate::problem::Problem;

const PAGE: u32 = 50;

/// What may be typed, with what it is called.
const FIELDS: [(&str, &str); 4] =
    [("queue", "Queue"), ("kind", "Kind"), ("batch", "Batch"), ("tenant", "Tenant")];

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    let filter = UnitFilter {
        state: visit.asked("state")?,
        queue: visit.asked("queue")?,
        kind: visit.asked("kind")?,
        batch: visit.asked("batch")?,
    };
    let scope = visit.caller.narrowed(visit.asked::<TenantId>("tenant")?)?;
    let after = visit.query.get("after").map(String::as_str);
    let (items, next) = match visit.asked::<UnitId>("id")? {
        Some(id) => (vec![visit.house.store.unit(&scope, id).await?], None),
        None => {
            let found = visit.house.store.units(&scope, &filter, after, PAGE).await?;
            (found.items, found.next)
        }
    };
    let main = html! {
        h1 { "Units" }
        (search(visit, filter.state))
        (table(visit, &items, next.is_some()))
        @if let Some(next) = next {
            p { a href={ "/units?" (asked(visit)) "after=" (query(&next)) } rel="next" {
                (if items.is_empty() { "Look further back" } else { "Older" })
            } }
        }
    };
    Ok(frame(&visit.caller, "/units", "Units", main))
}

/// What was asked for, for the way to the next page.
fn asked(visit: &Visit) -> String {
    let mut text = String::new();
    for name in ["state", "queue", "kind", "batch", "tenant"] {
        if let Some(value) = visit.query.get(name).filter(|value| !value.is_empty()) {
            text.push_str(&format!("{name}={}&", query(value)));
        }
    }
    text
}

fn search(visit: &Visit, chosen: Option<UnitState>) -> Markup {
    let typed = |name: &str| visit.query.get(name).map(String::as_str).unwrap_or_default();
    html! {
        form.search method="get" action="/units" role="search" {
            label { "State"
                select name="state" {
                    option value="" { "any" }
                    @for state in UnitState::ALL {
                        option value=(state) selected[chosen == Some(state)] { (state) }
                    }
                }
            }
            @for (name, label) in FIELDS {
                @if name != "tenant" || visit.caller.scope == Scope::All {
                    label { (label) input name=(name) value=(typed(name)) autocomplete="off"; }
                }
            }
            label { "Id" input name="id" value=(typed("id")) autocomplete="off"; }
            button { "Find" }
        }
    }
}

fn table(visit: &Visit, units: &[Unit], has_more: bool) -> Markup {
    let now = visit.house.now();
    let nothing = match has_more {
        true => html! { "None among the newest." },
        false => {
            html! { "No such units." br; code { "longshore submit exec '{\"argv\":[\"date\"]}'" } }
        }
    };
    sheet(
        units.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Unit" } th { "Kind" } th { "State" } th.less { "Queue" } th.less { "Tenant" }
                    th.less { "Batch" } th.n { "Attempt" } th.n.less { "Since" } th { "Why" }
                } }
                tbody { @for unit in units {
                    tr {
                        td { a href={ "/units/" (unit.id) } title=(unit.id) { code { (tail(unit.id)) } } }
                        td.name title=(unit.kind) { (unit.kind) }
                        td { (pill(unit.state.as_str())) }
                        td.less.name title=(unit.queue) { (unit.queue) }
                        td.less.name title=(unit.tenant) { (unit.tenant) }
                        td.less.name { @if let Some(batch) = &unit.batch { a href={ "/batches/" (batch) } { (batch) } } }
                        td.n { (unit.attempt) }
                        td.n.less { (ago(unit.since, now)) }
                        td.wide { @if let Some(why) = &unit.failure { (line(&why.message)) } }
                    }
                } }
            }
        },
    )
}

/// The end of an id: those that were made together begin alike.
pub(super) fn tail(id: UnitId) -> String {
    let id = id.to_string();
    format!("…{}", &id[id.len() - 12..])
}

/// The beginning of a text, as long as a line.
pub(super) fn line(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
