//! `/units/ID`: one unit with its failed runs and its payload, which is masked until a permitted user shows
//! it.

use longshore::accounts::Role;
use longshore::store::UnitFailure;
use longshore::unit::Payload;
use longshore::{Timestamp, Unit, UnitId, UnitState};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::PageRequest;
use super::batches::query;
use super::format::{ago, duration};
use super::layout::{button, layout, pill, table_or_empty};
use crate::problem::Problem;

/// Maximum number of characters of a payload that is shown.
const MAX_SHOWN_CHARS: usize = 64 * 1024;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let id: UnitId = req.path_param("unit")?;
    let (store, scope, now) = (&req.app.store, &req.caller.scope, req.app.now());
    let unit = store.unit(scope, id).await?;
    let failures = store.failures(scope, id).await?;
    let main = html! {
        h1 { (unit.kind) " " (pill(unit.state.as_str())) }
        p { code { (unit.id) } }
        @if let Some(why) = &unit.failure { p.message { code { (why.code) } " " (why.message) } }
        (facts(&unit, now))
        @if req.caller.role >= Role::Operate { (actions(&unit)) }
        h2 { "Failed runs" }
        (runs(&failures, now))
        (payloads(req, &unit))
    };
    Ok(layout(&req.caller, "/units", unit.kind.as_str(), main))
}

fn facts(unit: &Unit, now: Timestamp) -> Markup {
    let ran = unit.started_at.map(|began| match unit.state {
        UnitState::Leased => format!("for {}", duration(now.since(began))),
        _ => format!("{}, for {}", ago(began, now), duration(unit.since.since(began))),
    });
    html! {
        dl.facts {
            dt { "Queue" } dd { (unit.queue) }
            dt { "Tenant" } dd { (unit.tenant) }
            @if let Some(batch) = &unit.batch {
                dt { "Batch" } dd { a href={ "/batches/" (query(batch.as_str())) } { (batch) } }
            }
            dt { "Sent" } dd { (ago(unit.created_at, now)) }
            dt { (entered(unit.state)) } dd {
                (ago(unit.since, now))
            }
            @if let Some(ran) = ran { dt { "Ran" } dd { (ran) } }
            dt { "Attempts" } dd { (unit.attempt) @if unit.lost > 0 { ", " (unit.lost) " lost with a worker" } }
            dt { "Priority" } dd { (unit.priority.level()) }
            @if let Some(deadline) = unit.deadline { dt { "Deadline" } dd { (deadline) } }
            @if let Some(session) = unit.session { dt { "Held by" } dd { code { (session) } } }
            @if unit.cancel_requested { dt { "Asked" } dd { "to stop" } }
        }
    }
}

fn entered(state: UnitState) -> &'static str {
    match state {
        UnitState::Blocked => "Waits for others since",
        UnitState::Scheduled => "Due",
        UnitState::Ready => "Ready since",
        UnitState::Leased => "Held since",
        UnitState::Done | UnitState::Failed | UnitState::Cancelled => "Ended",
    }
}

fn actions(unit: &Unit) -> Markup {
    let to = |verb: &str| format!("/units/{}/{verb}", unit.id);
    let cancel = "Cancel this unit? If it runs, it is asked to stop.";
    html! {
        div.actions {
            @match unit.state {
                UnitState::Failed | UnitState::Cancelled => (button(&to("retry"), "Retry", None)),
                UnitState::Done => {}
                _ => (button(&to("cancel"), "Cancel", Some(cancel))),
            }
        }
    }
}

fn runs(failures: &[UnitFailure], now: Timestamp) -> Markup {
    table_or_empty(
        failures.len(),
        html! { "None." },
        html! {
            table {
                thead { tr { th.n { "Attempt" } th { "Ended" } th { "Code" } th { "Why" } th.less { "Worker" } } }
                tbody { @for run in failures {
                    tr {
                        td.n { (run.attempt) }
                        td { (ago(run.at, now)) }
                        td { code { (run.failure.code) } }
                        td.wide { (run.failure.message) }
                        td.less { @if let Some(session) = run.session { code { (session) } } }
                    }
                } }
            }
        },
    )
}

fn payloads(req: &PageRequest, unit: &Unit) -> Markup {
    let can_read = req.caller.can_read(&unit.tenant);
    let is_shown = can_read && req.query.get("payload").is_some_and(|is| is == "shown");
    let parts = [
        ("Payload", Some(&unit.payload)),
        ("Checkpoint", unit.checkpoint.as_ref()),
        ("Result", unit.result.as_ref()),
    ];
    html! {
        @if !can_read {
            h2 { "Payload" }
            p.soft { "Not readable: it belongs to " (unit.tenant) "." }
        } @else {
            @for (name, part) in parts {
                @if let Some(part) = part { h2 { (name) } pre.sheet { (payload_text(part, is_shown)) } }
            }
            @if is_shown { p { a href={ "/units/" (unit.id) } { "Mask it" } } }
            @else { p { a href={ "/units/" (unit.id) "?payload=shown" } { "Show the payload" } } }
        }
    }
}

fn payload_text(part: &Payload, is_shown: bool) -> String {
    let value = serde_json::to_value(part).unwrap_or_default();
    let value = if is_shown { value } else { masked(&value) };
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((at, _)) => format!("{}\n…", &text[..at]),
        None => text,
    }
}

/// A value with its leaves masked.
fn masked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, is)| (name.clone(), masked(is)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::Null => Value::Null,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => "•••".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_masked_value_keeps_its_shape_and_nothing_else() {
        let value = json!({ "to": ["a@example.com", 7, true], "note": null, "in": { "pin": "1234" } });
        let shape = json!({ "to": ["•••", "•••", "•••"], "note": null, "in": { "pin": "•••" } });
        assert_eq!(masked(&value), shape);
    }

    #[test]
    fn what_is_very_long_is_cut() {
        let long = Payload::from(json!("x".repeat(MAX_SHOWN_CHARS * 2)));
        assert!(payload_text(&long, true).chars().count() < MAX_SHOWN_CHARS + 10);
        assert_eq!(payload_text(&long, false), "\"•••\"");
    }
}
