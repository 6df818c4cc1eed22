//! `/workers`: who works, with what, and orders to them.

use std::collections::HashMap;

use longshore::ledger::Role;
use longshore::session::{Order, Session};
use longshore::store::UnitFilter;
use longshore::{Kind, Scope, SessionId, Timestamp, Unit, UnitState};
use maud::{Markup, html};

use super::Visit;
use super::chart::short;
use super::frame::{button, frame, pill, sheet};
use super::words::{ago, number, span};
use crate::problem::Problem;

/// Units that are looked at to say what workers are at.
const HELD: u32 = 500;
/// Units shown of each worker.
const SHOWN: usize = 3;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    visit.caller.must_be(Role::Admin)?;
    let sessions = visit.house.store.sessions().await?;
    let leased = UnitFilter { state: Some(UnitState::Leased), ..UnitFilter::default() };
    let leased = visit.house.store.units(&Scope::All, &leased, None, HELD).await?.items;
    let mut held: HashMap<SessionId, Vec<&Unit>> = HashMap::new();
    for unit in &leased {
        if let Some(session) = unit.session {
            held.entry(session).or_default().push(unit);
        }
    }
    let main = html! {
        h1 { "Workers" }
        (table(visit, &sessions, &held))
    };
    Ok(frame(&visit.caller, "/workers", "Workers", main))
}

fn table(visit: &Visit, sessions: &[Session], held: &HashMap<SessionId, Vec<&Unit>>) -> Markup {
    let now = visit.house.now();
    let nothing = html! { "Nobody works." br; code { "longshore worker" } };
    sheet(
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
                        td.wide { (session.label) br; code title=(session.id) { (beginning(session.id)) } }
                        td { (pill(order(session.order))) }
                        td { (slots(session)) }
                        td { @if session.slots == 0 { span.soft { "no units" } } @else {
                            (now_at(held.get(&session.id).map_or(&[], Vec::as_slice), now))
                        } }
                        td.less { (kinds(&session.kinds)) }
                        td.n.less { (span(now.since(session.opened_at))) }
                        td.n { (session.cpu.map_or(String::new(), short)) }
                        td.n { (ago(session.beat_at, now)) }
                        td.less { (session.version) }
                        td { @if session.slots > 0 { (orders(session)) } }
                    }
                } }
            }
        },
    )
}

/// The beginning of an id: `workers drain` takes it for all of it.
fn beginning(id: SessionId) -> String {
    id.to_string().chars().take(8).collect()
}

/// How many slots are taken, of how many.
fn slots(session: &Session) -> Markup {
    // A server of script workers takes whatever they have room for.
    if session.own_slots() == 0 {
        return html! { @if session.held > 0 { (number(session.held)) " held" } };
    }
    let words = format!("{} of {}", number(session.held), session.slots);
    html! {
        progress value=(session.held.min(session.slots.into())) max=(session.slots.max(1)) title=(words) {}
        span.soft { (words) }
    }
}

/// What it is at, the newest first.
fn now_at(units: &[&Unit], now: Timestamp) -> Markup {
    html! {
        @for unit in units.iter().take(SHOWN) {
            div { a href={ "/units/" (unit.id) } { (unit.kind) } " "
                span.soft { (unit.started_at.map_or(String::new(), |began| span(now.since(began)))) } }
        }
        @if units.len() > SHOWN { div.soft { (units.len() - SHOWN) " more" } }
        @if units.is_empty() { span.soft { "idle" } }
    }
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Work => "work",
        Order::Quiet => "quiet",
        Order::Drain => "drain",
        Order::Stop => "stop",
    }
}

fn kinds(kinds: &[Kind]) -> String {
    kinds.iter().map(Kind::as_str).collect::<Vec<_>>().join(", ")
}

fn orders(session: &Session) -> Markup {
    let to = |verb: &str| format!("/workers/{}/{verb}", session.id);
    let drain = format!("Have {} finish what it holds, then end?", session.label);
    let stop =
        format!("Stop {} now? What it runs is interrupted and will run again.", session.label);
    html! {
        div.deeds {
            @match session.order {
                Order::Work => {
                    (button(&to("quiet"), "Quiet", None))
                    (button(&to("drain"), "Drain", Some(&drain)))
                }
                Order::Quiet => {
                    (button(&to("work"), "Work", None))
                    (button(&to("drain"), "Drain", Some(&drain)))
                }
                Order::Drain => { (button(&to("stop"), "Stop", Some(&stop))) }
                Order::Stop => {}
            }
        }
    }
}
