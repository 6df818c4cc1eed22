//! `/audit`: which changes were asked for over the network, and by whom.

use longshore::ledger::{Deed, Role};
use maud::{Markup, html};

use super::Visit;
use super::batches::query;
use super::frame::{frame, sheet};
use super::words::ago;
use crate::problem::Problem;

const PAGE: u32 = 100;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    visit.caller.must_be(Role::Operate)?;
    let after = visit.query.get("after").map(String::as_str);
    let found = visit.house.ledger.deeds(&visit.caller.scope, after, PAGE).await?;
    let main = html! {
        h1 { "Audit log" }
        (table(visit, &found.items))
        @if let Some(next) = found.next {
            p { a href={ "/audit?after=" (query(&next)) } rel="next" { "Older" } }
        }
    };
    Ok(frame(&visit.caller, "/audit", "Audit log", main))
}

fn table(visit: &Visit, deeds: &[Deed]) -> Markup {
    let now = visit.house.now();
    sheet(
        deeds.len(),
        html! { "Nothing was changed over the network yet." },
        html! {
            table {
                thead { tr {
                    th { "When" } th { "By" } th { "Asked" } th { "Of" } th.less { "Tenant" } th.less { "Detail" }
                } }
                tbody { @for Deed { at, deed, .. } in deeds {
                    tr {
                        td { span title=(at) { (ago(*at, now)) } }
                        td.name title=(deed.by) { (deed.by) }
                        td { code { (deed.action) } }
                        td.wide { (deed.target) }
                        td.less { (deed.tenant.as_ref().map_or("all", |tenant| tenant.as_str())) }
                        td.less.wide { (deed.detail) }
                    }
                } }
            }
        },
    )
}
