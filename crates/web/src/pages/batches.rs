//! `/batches`: all batches, newest first.

use longshore::{Batch, BatchStatus};
use maud::{Markup, html};

use super::PageRequest;
use super::format::{ago, duration, number};
use super::layout::{layout, pill, table_or_empty};
use crate::api::batches::BatchView;
use crate::problem::Problem;

const PAGE: u32 = 50;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let status = req.query.get("status").and_then(|text| text.parse::<BatchStatus>().ok());
    let after = req.query.get("after").map(String::as_str);
    let found = req.app.store.batches(&req.caller.scope, status, after, PAGE).await?;
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
        (table(req, found.items))
        @if let Some(next) = found.next {
            @let status = status.map_or(String::new(), |status| format!("&status={status}"));
            p { a href={ "/batches?after=" (query(&next)) (status) } rel="next" { "Older" } }
        }
    };
    Ok(layout(&req.caller, "/batches", "Batches", main))
}

/// Percent-encodes text for a query.
pub(super) fn query(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// A table of batches with their progress.
pub(super) fn table(req: &PageRequest, batches: Vec<Batch>) -> Markup {
    let now = req.app.now();
    let shown: Vec<BatchView> =
        batches.into_iter().map(|batch| BatchView::new(batch, &req.caller, now)).collect();
    let nothing = html! {
        "No batches." br; code { "longshore batch run examples/purchase-orders" }
    };
    table_or_empty(
        shown.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Batch" } th.less { "Tenant" } th { "Status" } th { "Progress" }
                    th.n { "Done" } th.n { "Failed" } th.n.less { "Left" } th.n.less { "Time left" }
                    th.less { "Started" }
                } }
                tbody { @for BatchView { batch, progress } in &shown {
                    tr {
                        td.wide { a href={ "/batches/" (query(batch.id.as_str())) } { (batch.id) } }
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

/// A progress bar with text.
pub(super) fn bar(fraction: f64) -> Markup {
    let percent = format!("{:.0} %", (fraction * 100.0).floor());
    html! { progress value=(format!("{fraction:.4}")) max="1" title=(percent) { (percent) } }
}

/// Formats the estimated time left.
pub(super) fn left(seconds: f64) -> String {
    duration(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}
