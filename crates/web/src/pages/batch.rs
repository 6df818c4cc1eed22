//! `/batches/NAME`: one batch with its failures by reason, its rows and actions.

use longshore::accounts::Role;
use longshore::text::truncate_chars;
use longshore::{BatchId, BatchStatus, UnitState};
use longshore_batch::report::{FailureGroup, gather_failures};
use longshore_batch::row_listing::{self, ListedRow, RowFilter};
use longshore_batch::sql_json::{from_json, show_key};
use maud::{Markup, html};

use super::PageRequest;
use super::batches::{bar, left, query};
use super::format::{ago, number, rate};
use super::layout::{button, layout, pill, table_or_empty};
use super::units::tail;
use crate::api::batches::{BatchView, MAX_GROUPED_FAILURES};
use crate::problem::Problem;

const PAGE: u32 = 50;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let id: BatchId = req.path_param("batch")?;
    let (store, scope, now) = (&*req.app.store, &req.caller.scope, req.app.now());
    let shown = BatchView::new(store.batch(scope, &id).await?, &req.caller, now);
    let reads = req.caller.can_read(&shown.batch.tenant);
    let failures = match shown.batch.counts.failed {
        0 => Vec::new(),
        _ => gather_failures(store, scope, &id, Some(MAX_GROUPED_FAILURES)).await?,
    };
    let state = req.query.get("state").and_then(|text| text.parse::<UnitState>().ok());
    let after = req.query.get("after").map(String::as_str);
    let rows = row_listing::rows(store, scope, &id, &RowFilter::in_state(state), after, PAGE).await?;
    let main = html! {
        h1 { (id) " " (pill(shown.batch.status.as_str())) }
        @if let Some(reason) = &shown.batch.reason { p.message { (reason) } }
        (figures(&shown))
        p { "Tenant " (shown.batch.tenant) " · started " (ago(shown.batch.initiated_at, now))
            " by " (shown.batch.initiated_by) }
        @if shown.batch.status == BatchStatus::Paused && shown.batch.counts.leased > 0 {
            p.soft { (number(shown.batch.counts.leased)) " still run to their end; nothing else is begun." }
        }
        @if req.caller.role >= Role::Operate { (actions(&shown)) }
        (reasons(&shown, &failures, reads))
        h2 { "Rows" }
        (filter(&id, state))
        (table(&rows.items, reads))
        @if let Some(next) = &rows.next {
            @let state = state.map_or(String::new(), |state| format!("&state={state}"));
            p { a href={ "/batches/" (query(id.as_str())) "?after=" (query(next)) (state) } rel="next" { "Older" } }
        }
    };
    Ok(layout(&req.caller, "/batches", id.as_str(), main))
}

fn figures(BatchView { batch, progress }: &BatchView) -> Markup {
    let counts = &batch.counts;
    let tile = |name: &str, value: String, is_bad: bool| {
        html! { div class=(if is_bad { "tile bad" } else { "tile" }) { b { (value) } span { (name) } } }
    };
    html! {
        p { (bar(progress.fraction)) }
        div.tiles {
            (tile(if batch.sealed { "rows" } else { "rows so far" }, number(counts.total()), false))
            (tile("done", number(counts.done), false))
            (tile("failed", number(counts.failed), counts.failed > 0))
            (tile("running", number(counts.leased), false))
            (tile("waiting", number(counts.live() - counts.leased), false))
            @if let Some(per_second) = progress.rate { (tile("rate", rate(per_second), false)) }
            @if let Some(seconds) = progress.seconds_left { (tile("time left", left(seconds), false)) }
            @if progress.cost > 0.0 { (tile("cost", format!("${:.4}", progress.cost), false)) }
        }
    }
}

fn actions(BatchView { batch, .. }: &BatchView) -> Markup {
    let to = |verb: &str| format!("/batches/{}/{verb}", query(batch.id.as_str()));
    let cancel = format!("Give up batch {}? What waits is cancelled.", batch.id);
    html! {
        div.actions {
            @if batch.status.is_open() {
                (button(&to("pause"), "Pause", None))
                (button(&to("drain"), "Drain", None))
            }
            @if batch.status == BatchStatus::Paused { (button(&to("resume"), "Resume", None)) }
            @if batch.counts.failed > 0 { (button(&to("retry"), "Retry failures", None)) }
            @if !batch.status.is_final() { (button(&to("cancel"), "Cancel", Some(&cancel))) }
        }
    }
}

fn reasons(shown: &BatchView, failures: &[FailureGroup], reads: bool) -> Markup {
    let failed = shown.batch.counts.failed;
    html! {
        @if failed > 0 {
            h2 { "Failures by reason" }
            @if failed > MAX_GROUPED_FAILURES {
                p.soft { "Of the newest " (number(MAX_GROUPED_FAILURES)) " failures; of all: "
                    code { "longshore batch report " (shown.batch.id) } }
            }
            (table_or_empty(failures.len(), html! { "None." }, html! {
                    table {
                        thead { tr { th.n { "Rows" } th { "Code" } th { "Reason" } th.less { "As" } } }
                        tbody { @for group in failures {
                            tr {
                                td.n { (number(group.count)) }
                                td { code { (group.code) } }
                                td.wide { (group.message) }
                                td.less { @if reads { (group.examples.join(", ")) } }
                            }
                        } }
                    }
                }))
        }
    }
}

fn filter(id: &BatchId, chosen: Option<UnitState>) -> Markup {
    html! {
        div.filter {
            a href={ "/batches/" (query(id.as_str())) } aria-current=[chosen.is_none().then_some("true")] { "all" }
            @for state in UnitState::ALL {
                a href={ "/batches/" (query(id.as_str())) "?state=" (state) }
                    aria-current=[(chosen == Some(state)).then_some("true")] { (state) }
            }
        }
    }
}

fn table(rows: &[ListedRow], reads: bool) -> Markup {
    table_or_empty(
        rows.len(),
        html! { "No such rows." },
        html! {
            table {
                thead { tr {
                    th { "Row" } th { "State" } th.n { "Attempt" } th { "Why" } th.less { "Unit" }
                } }
                tbody { @for row in rows {
                    tr {
                        td.wide { @if reads { (key(row)) } @else { "(not readable)" } }
                        td { (pill(row.state.as_str())) }
                        td.n { (row.attempt) }
                        td.wide { (row.reason.as_deref().unwrap_or_default()) }
                        td.less { a href={ "/units/" (row.unit) } title=(row.unit) { code { (tail(row.unit)) } } }
                    }
                } }
            }
        },
    )
}

/// A row's key, shortened.
fn key(row: &ListedRow) -> String {
    truncate_chars(&show_key(&from_json(&row.key)), 80)
}
