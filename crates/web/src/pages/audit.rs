//! `/audit`: mutations over HTTP, and the callers.

use longshore::accounts::{AuditEntry, Role};
use maud::{Markup, html};

use super::PageRequest;
use super::batches::query;
use super::format::ago;
use super::layout::{layout, table_or_empty};
use crate::problem::Problem;

const PAGE: u32 = 100;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    req.caller.require_role(Role::Operate)?;
    let after = req.query.get("after").map(String::as_str);
    let found = req.app.ledger.audit_entries(&req.caller.scope, after, PAGE).await?;
    let main = html! {
        h1 { "Audit log" }
        (table(req, &found.items))
        @if let Some(next) = found.next {
            p { a href={ "/audit?after=" (query(&next)) } rel="next" { "Older" } }
        }
    };
    Ok(layout(&req.caller, "/audit", "Audit log", main))
}

fn table(req: &PageRequest, entries: &[AuditEntry]) -> Markup {
    let now = req.app.now();
    table_or_empty(
        entries.len(),
        html! { "Nothing was changed over HTTP yet." },
        html! {
            table {
                thead { tr {
                    th { "When" } th { "By" } th { "Asked" } th { "Of" } th.less { "Tenant" } th.less { "Detail" }
                } }
                tbody { @for AuditEntry { at, entry, .. } in entries {
                    tr {
                        td { span title=(at) { (ago(*at, now)) } }
                        td.name title=(entry.by) { (entry.by) }
                        td { code { (entry.action) } }
                        td.wide { (entry.target) }
                        td.less { (entry.tenant.as_ref().map_or("all", |tenant| tenant.as_str())) }
                        td.less.wide { (entry.detail) }
                    }
                } }
            }
        },
    )
}
