//! `/batches`: all batches, newest first.

use longshore::{Batch, BatchStatus};
use maud::{Markup, html};

use super::Visit;
use super::frame::{frame, pill, sheet};
use super::words::{ago, number, span};
use crate::api::batches::Shown;
use crate::problem::Problem;

const PAGE: u32 = 50;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    let status = visit.query.get("status").and_then(|text| text.parse::<BatchStatus>().ok());
    let after = visit.query.get("after").map(String::as_str);
    let found = visit.house.store.batches(&visit.caller.scope, status, after, PAGE).await?;
    let main = html! {
        h1 { "Batches" }
        div.filter {
            a href="/batches" aria-current=[status.is_none().then_some("true")] { "all" }
            @for one in BatchStatus::ALL {
                a href={ "/batches?status=" (one) } aria-current=[(status == Some(one)).then_some("true")] {
                    (one)
                }
            }
        }
        (table(visit, found.items))
        @if let Some(next) = found.next {
            @let status = status.map_or(String::new(), |status| format!("&status={status}"));
            p { a href={ "/batches?after=" (query(&next)) (status) } rel="next" { "Older" } }
        }
    };
    Ok(frame(&visit.caller, "/batches", "Batches", main))
}

/// Text as it stands in a query.
pub(super) fn query(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Batches with how they get on.
pub(super) fn table(visit: &Visit, batches: Vec<Batch>) -> Markup {
    let now = visit.house.now();
    let shown: Vec<Shown> =
        batches.into_iter().map(|batch| Shown::new(batch, &visit.caller, now)).collect();
    let nothing = html! {
        "No batches." br; code { "longshore batch run examples/purchase-orders" }
    };
    sheet(
        shown.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Batch" } th.less { "Tenant" } th { "Status" } th { "Progress" }
                    th.n { "Done" } th.n { "Failed" } th.n.less { "Left" } th.n.less { "Time left" }
                    th.less { "Started" }
                } }
                tbody { @for Shown { batch, progress } in &shown {
                    tr {
                        td.wide { a href={ "/batches/" (batch.id) } { (batch.id) } }
                        td.less { (batch.tenant) }
                        td { (pill(batch.status.as_str())) }
                        td { (bar(progress.fraction)) }
                        td.n { (number(batch.counts.done)) }
                        td.n { (number(batch.counts.failed)) }
                        td.n.less { (number(batch.counts.live())) }
                        td.n.less { (progress.seconds_left.map_or(String::new(), left)) }
                        td.less { (ago(batch.initiated_at, now)) }
                    }
                } }
            }
        },
    )
}

/// How far it is, to see and to read.
pub(super) fn bar(fraction: f64) -> Markup {
    let percent = format!("{:.0} %", (fraction * 100.0).floor());
    html! { progress value=(format!("{fraction:.4}")) max="1" title=(percent) { (percent) } }
}

/// Seconds until the end, as far as anybody can know.
pub(super) fn left(seconds: f64) -> String {
    span(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}
