//! `/workers`: workers, their units, and commands to them.

use std::collections::HashMap;

use longshore::accounts::Role;
use longshore::store::UnitFilter;
use longshore::worker_session::{Session, WorkerCommand};
use longshore::{Kind, Scope, SessionId, Timestamp, Unit, UnitState};
use maud::{Markup, html};

use super::PageRequest;
use super::batches::query;
use super::format::{ago, duration, number};
use super::layout::{button, layout, pill, table_or_empty};
use crate::problem::Problem;
use crate::request_context::page_of;

/// Maximum number of leased units that are loaded.
const MAX_LEASED: u32 = 500;
/// Units shown of each worker.
const MAX_SHOWN: usize = 3;
/// Workers per page.
const PAGE: u32 = 200;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    req.caller.require_role(Role::Admin)?;
    let sessions = req.app.store.sessions().await?;
    let after = req.query.get("after").map(String::as_str);
    let found = page_of(sessions, after, PAGE, |session| session.id.to_string());
    let leased = UnitFilter { state: Some(UnitState::Leased), ..UnitFilter::default() };
    let leased = req.app.store.units(&Scope::All, &leased, None, MAX_LEASED).await?.items;
    let mut held: HashMap<SessionId, Vec<&Unit>> = HashMap::new();
    for unit in &leased {
        if let Some(session) = unit.session {
            held.entry(session).or_default().push(unit);
        }
    }
    let main = html! {
        h1 { "Workers" }
        (table(req, &found.items, &held))
        @if let Some(next) = found.next {
            p { a href={ "/workers?after=" (query(&next)) } rel="next" { "More" } }
        }
    };
    Ok(layout(&req.caller, "/workers", "Workers", main))
}

fn table(req: &PageRequest, sessions: &[Session], held: &HashMap<SessionId, Vec<&Unit>>) -> Markup {
    let now = req.app.now();
    let nothing = html! { "No workers." br; code { "longshore worker" } };
    table_or_empty(
        sessions.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Worker" } th { "Order" } th { "Slots" } th { "Now" } th.less { "Kinds" }
                    th.n.less { "Since" } th.n { "CPU time" } th.n { "Last beat" } th.less { "Version" } th { "" }
                } }
                tbody { @for session in sessions {
                    tr {
                        td.wide { (session.label) br; code title=(session.id) { (short_id(session.id)) } }
                        td { (pill(session.command.as_str())) }
                        td { (slots(session)) }
                        td { @if session.slots == 0 { span.soft { "no units" } } @else {
                            (current_units(held.get(&session.id).map_or(&[], Vec::as_slice), now))
                        } }
                        td.less { (kinds(&session.kinds)) }
                        td.n.less { (duration(now.since(session.opened_at))) }
                        td.n { (session.cpu.map_or(String::new(), duration)) }
                        td.n { (ago(session.beat_at, now)) }
                        td.less { (session.version) }
                        td { @if session.slots > 0 { (commands(session)) } }
                    }
                } }
            }
        },
    )
}

/// The first characters of an id: `workers drain` accepts them.
fn short_id(id: SessionId) -> String {
    id.to_string().chars().take(8).collect()
}

/// Used and total slots.
fn slots(session: &Session) -> Markup {
    // A dispatch server claims as much as its workers have room for.
    if session.own_slots() == 0 {
        return html! { @if session.held > 0 { (number(session.held)) " held" } };
    }
    let words = format!("{} of {}", number(session.held), session.slots);
    html! {
        progress value=(session.held.min(session.slots.into())) max=(session.slots.max(1)) title=(words) {}
        span.soft { (words) }
    }
}

/// Its current units, newest first.
fn current_units(units: &[&Unit], now: Timestamp) -> Markup {
    html! {
        @for unit in units.iter().take(MAX_SHOWN) {
            div { a href={ "/units/" (unit.id) } { (unit.kind) } " "
                span.soft { (unit.started_at.map_or(String::new(), |began| duration(now.since(began)))) } }
        }
        @if units.len() > MAX_SHOWN { div.soft { (units.len() - MAX_SHOWN) " more" } }
        @if units.is_empty() { span.soft { "idle" } }
    }
}

fn kinds(kinds: &[Kind]) -> String {
    kinds.iter().map(Kind::as_str).collect::<Vec<_>>().join(", ")
}

fn commands(session: &Session) -> Markup {
    let to = |verb: &str| format!("/workers/{}/{verb}", session.id);
    let drain = format!("Have {} finish what it holds, then end?", session.label);
    let stop = format!("Stop {} now? What it runs is interrupted and will run again.", session.label);
    html! {
        div.actions {
            @match session.command {
                WorkerCommand::Work => {
                    (button(&to("quiet"), "Quiet", None))
                    (button(&to("drain"), "Drain", Some(&drain)))
                }
                WorkerCommand::Quiet => {
                    (button(&to("work"), "Work", None))
                    (button(&to("drain"), "Drain", Some(&drain)))
                }
                WorkerCommand::Drain => { (button(&to("stop"), "Stop", Some(&stop))) }
                WorkerCommand::Stop => {}
            }
        }
    }
}
