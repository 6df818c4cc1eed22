//! `/workers`: who works, with what, and orders to them.

use longshore::Kind;
use longshore::ledger::Role;
use longshore::session::{Order, Session};
use maud::{Markup, html};

use super::Visit;
use super::frame::{button, frame, pill, sheet};
use super::words::{ago, number, span};
use crate::problem::Problem;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    visit.caller.must_be(Role::Admin)?;
    let sessions = visit.house.store.sessions().await?;
    let main = html! {
        h1 { "Workers" }
        (table(visit, &sessions))
    };
    Ok(frame(&visit.caller, "/workers", "Workers", main))
}

fn table(visit: &Visit, sessions: &[Session]) -> Markup {
    let now = visit.house.now();
    let nothing = html! { "Nobody works." br; code { "longshore worker" } };
    sheet(
        sessions.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Worker" } th { "Order" } th.n { "Held" } th.n { "Slots" } th.less { "Kinds" }
                    th.n.less { "Since" } th.n { "Last beat" } th.less { "Version" } th { "" }
                } }
                tbody { @for session in sessions {
                    tr {
                        td.wide { (session.label) br; code { (session.id) } }
                        td { (pill(order(session.order))) }
                        td.n { (number(session.held)) }
                        td.n { (session.slots) }
                        td.less { (kinds(&session.kinds)) }
                        td.n.less { (span(now.since(session.opened_at))) }
                        td.n { (ago(session.beat_at, now)) }
                        td.less { (session.version) }
                        td { (orders(session)) }
                    }
                } }
            }
        },
    )
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
    html! {
        div.deeds {
            @match session.order {
                Order::Work => {
                    (button(&to("quiet"), "Quiet", None))
                    (button(&to("drain"), "Drain", Some(&drain)))
                }
                Order::Quiet => { (button(&to("work"), "Work", None)) }
                Order::Drain | Order::Stop => {}
            }
        }
    }
}
