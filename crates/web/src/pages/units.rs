//! `/units`: search by indexed fields: state, queue, kind, batch, tenant, id.

use longshore::store::UnitFilter;
use longshore::text::truncate_chars;
use longshore::{Scope, TenantId, Unit, UnitId, UnitState};
use maud::{Markup, html};

use super::PageRequest;
use super::batches::query;
use super::format::ago;
use super::layout::{layout, pill, table_or_empty};
use crate::problem::Problem;

const PAGE: u32 = 50;

/// The search fields and their labels.
const FIELDS: [(&str, &str); 4] =
    [("queue", "Queue"), ("kind", "Kind"), ("batch", "Batch"), ("tenant", "Tenant")];

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let filter = UnitFilter {
        state: req.query_param("state")?,
        queue: req.query_param("queue")?,
        kind: req.query_param("kind")?,
        batch: req.query_param("batch")?,
    };
    let scope = req.caller.scope_for(req.query_param::<TenantId>("tenant")?)?;
    let after = req.query.get("after").map(String::as_str);
    let (items, next) = match req.query_param::<UnitId>("id")? {
        Some(id) => (vec![req.app.store.unit(&scope, id).await?], None),
        None => {
            let found = req.app.store.units(&scope, &filter, after, PAGE).await?;
            (found.items, found.next)
        }
    };
    let main = html! {
        h1 { "Units" }
        (search(req, filter.state))
        (table(req, &items, next.is_some()))
        @if let Some(next) = next {
            p { a href={ "/units?" (search_params(req)) "after=" (query(&next)) } rel="next" {
                (if items.is_empty() { "Look further back" } else { "Older" })
            } }
        }
    };
    Ok(layout(&req.caller, "/units", "Units", main))
}

/// The search parameters, for the link to the next page.
fn search_params(req: &PageRequest) -> String {
    let mut text = String::new();
    for name in ["state", "queue", "kind", "batch", "tenant"] {
        if let Some(value) = req.query.get(name).filter(|value| !value.is_empty()) {
            text.push_str(&format!("{name}={}&", query(value)));
        }
    }
    text
}

fn search(req: &PageRequest, chosen: Option<UnitState>) -> Markup {
    let typed = |name: &str| req.query.get(name).map(String::as_str).unwrap_or_default();
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
                @if name != "tenant" || req.caller.scope == Scope::All {
                    label { (label) input name=(name) value=(typed(name)) autocomplete="off"; }
                }
            }
            label { "Id" input name="id" value=(typed("id")) autocomplete="off"; }
            button { "Find" }
        }
    }
}

fn table(req: &PageRequest, units: &[Unit], has_more: bool) -> Markup {
    let now = req.app.now();
    let nothing = match has_more {
        true => html! { "None among the newest." },
        false => {
            html! { "No such units." br; code { "longshore submit exec '{\"argv\":[\"date\"]}'" } }
        }
    };
    table_or_empty(
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
                        td.less.name { @if let Some(batch) = &unit.batch { a href={ "/batches/" (query(batch.as_str())) } { (batch) } } }
                        td.n { (unit.attempt) }
                        td.n.less { (ago(unit.since, now)) }
                        td.wide { @if let Some(why) = &unit.failure { (shorten(&why.message)) } }
                    }
                } }
            }
        },
    )
}

/// The end of an id: ids created together begin alike.
pub(super) fn tail(id: UnitId) -> String {
    let id = id.to_string();
    format!("…{}", &id[id.len() - 12..])
}

/// Shortens a text to one line.
pub(super) fn shorten(text: &str) -> String {
    truncate_chars(text, 120)
}
