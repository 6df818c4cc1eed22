//! What all pages have around them.

use axum::http::StatusCode;
use longshore::ledger::Role;
use maud::{DOCTYPE, Markup, html};

use crate::door::Caller;

/// The pages that can be gone to, and who may.
const PAGES: [(&str, &str, Role); 10] = [
    ("/", "Overview", Role::Read),
    ("/batches", "Batches", Role::Read),
    ("/queues", "Queues", Role::Read),
    ("/units", "Units", Role::Read),
    ("/workers", "Workers", Role::Admin),
    ("/pools", "Pools", Role::Read),
    ("/usage", "AI usage", Role::Read),
    ("/cron", "Cron", Role::Read),
    ("/dispatch", "Dispatch", Role::Admin),
    ("/audit", "Audit", Role::Operate),
];

/// A page of somebody who came in.
pub(super) fn frame(caller: &Caller, at: &str, title: &str, main: Markup) -> Markup {
    bare(title, menu(caller, at), main, true)
}

fn menu(caller: &Caller, at: &str) -> Markup {
    html! {
        nav aria-label="Pages" {
            @for (path, name, role) in PAGES {
                @if caller.role >= role {
                    a href=(path) aria-current=[(path == at).then_some("page")] { (name) }
                }
            }
        }
        div.who {
            span { (caller.by) " · " (caller.role) }
            @if caller.token.is_some() {
                form method="post" action="/logout" { button { "Log out" } }
            }
        }
    }
}

/// A page that says what is wrong.
pub(super) fn problem(caller: Option<&Caller>, status: StatusCode, words: &str) -> Markup {
    let title = status.canonical_reason().unwrap_or("Problem");
    let main = html! {
        h1 { (title) }
        p.said.problem { (words) }
        p { a href="/" { "Overview" } }
    };
    match caller {
        // Nothing to keep up to date.
        Some(caller) => bare(title, menu(caller, ""), main, false),
        None => bare(title, html! {}, main, false),
    }
}

/// A page of anybody.
pub(super) fn bare(title: &str, menu: Markup, main: Markup, is_live: bool) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { (title) " · Longshore" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/style.css";
                @if is_live { script src="/assets/live.js" defer {} }
            }
            body {
                a.skip href="#main" { "To the content" }
                header { div { strong { "Longshore" } (menu) } }
                main #main { (main) }
                footer { "Longshore " (env!("CARGO_PKG_VERSION")) " " span #live role="status" {} }
            }
        }
    }
}

/// A table in its sheet, or words if there is nothing in it.
pub(super) fn sheet(rows: usize, nothing: Markup, table: Markup) -> Markup {
    html! {
        div.sheet {
            @if rows == 0 { div.empty { (nothing) } } @else { (table) }
        }
    }
}

/// A state, coloured by what it is and readable without colours.
pub(super) fn pill(state: &str) -> Markup {
    html! { span class={ "pill " (state) } { (state) } }
}

/// A button that asks the API for something.
pub(super) fn button(action: &str, name: &str, question: Option<&str>) -> Markup {
    html! {
        form method="post" action=(action) data-ask=[question] {
            button class=[question.map(|_| "grave")] id=(action.replace(['/', '?', '='], "-")) { (name) }
        }
    }
}
