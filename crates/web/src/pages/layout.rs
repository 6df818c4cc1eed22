//! The layout of all pages, and shared elements.

use axum::http::StatusCode;
use longshore::accounts::Role;
use maud::{DOCTYPE, Markup, html};

use crate::auth::Caller;

/// The menu: path, name and required role.
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

/// A page with the caller's menu.
pub(super) fn layout(caller: &Caller, at: &str, title: &str, main: Markup) -> Markup {
    document(title, menu(caller, at), main, true)
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
            span { (caller.label) " · " (caller.role) }
            @if caller.token.is_some() {
                form method="post" action="/logout" { button { "Log out" } }
            }
        }
    }
}

/// An error page.
pub(super) fn problem_page(caller: Option<&Caller>, status: StatusCode, detail: &str) -> Markup {
    let title = status.canonical_reason().unwrap_or("Problem");
    let main = html! {
        h1 { (title) }
        p.message.problem { (detail) }
        p { a href="/" { "Overview" } }
    };
    match caller {
        // An error page does not update.
        Some(caller) => document(title, menu(caller, ""), main, false),
        None => document(title, html! {}, main, false),
    }
}

/// A complete HTML document.
pub(super) fn document(title: &str, menu: Markup, main: Markup, is_live: bool) -> Markup {
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

/// A table, or a text if it is empty.
pub(super) fn table_or_empty(rows: usize, nothing: Markup, table: Markup) -> Markup {
    html! {
        div.sheet {
            @if rows == 0 { div.empty { (nothing) } } @else { (table) }
        }
    }
}

/// A state as a label, coloured by CSS and readable without colours.
pub(super) fn pill(state: &str) -> Markup {
    html! { span class={ "pill " (state) } { (state) } }
}

/// A button that posts to an endpoint, with an optional confirmation.
pub(super) fn button(action: &str, name: &str, question: Option<&str>) -> Markup {
    html! {
        form method="post" action=(action) data-ask=[question] {
            button class=[question.map(|_| "critical")] id=(action.replace(['/', '?', '='], "-")) { (name) }
        }
    }
}
