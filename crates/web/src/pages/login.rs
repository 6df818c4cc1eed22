//! `/login` and `/logout`: exchanges a token for a session cookie.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use maud::{Markup, html};

use super::layout::document;
use super::{html_response, redirect, require_browser_form};
use crate::app_state::AppState;
use crate::browser_session::set_cookie;
use crate::problem::Problem;
use crate::server::OverTls;
use crate::token;

/// Maximum size of a form.
const MAX_FORM_BYTES: usize = 4096;

/// The login form, with the error of the last attempt.
pub(super) fn page(error: Option<&str>) -> Markup {
    let main = html! {
        form.login.sheet method="post" action="/login" {
            h1 { "Log in" }
            @if let Some(detail) = error { p.message role="alert" { (detail) } }
            label { "Token"
                input type="password" name="token" autocomplete="current-password" required autofocus;
            }
            button { "Log in" }
            p { "Create a token with " code { "longshore token add" } "." }
        }
    };
    document("Log in", html! {}, main, false)
}

/// Checks the token and sets a session cookie.
pub(super) async fn log_in(app: Arc<AppState>, request: Request) -> Response {
    if let Err(problem) = require_browser_form(&request) {
        return html_response(StatusCode::FORBIDDEN, page(Some(problem.detail())));
    }
    let (head, body) = request.into_parts();
    match try_log_in(&app, &head, body).await {
        Ok(cookie) => with_cookie(redirect("/"), &set_cookie(&cookie, is_secure(&head))),
        Err(problem) => html_response(problem.status(), page(Some(problem.detail()))),
    }
}

async fn try_log_in(app: &AppState, head: &Parts, body: axum::body::Body) -> Result<String, Problem> {
    crate::auth::reject_cross_site(head)?;
    let reading = Limited::new(body, MAX_FORM_BYTES).collect();
    let read = tokio::time::timeout(app.limits.time, reading).await;
    let read = read.map_err(|_| Problem::timeout("the form did not arrive in time"))?;
    let bytes = read.map_err(|_| Problem::bad_request("the form cannot be read"))?.to_bytes();
    let mut fields = form_urlencoded::parse(&bytes);
    let given = fields.find(|(name, _)| name == "token").map(|(_, token)| token);
    let hash = token::hash(given.as_deref().unwrap_or_default().trim());
    let from = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
    let now = app.now();
    app.auth.authenticate_token(hash, from, now).await?;
    Ok(app.auth.sessions.begin(hash, now))
}

/// Ends the session.
pub(super) async fn log_out(app: Arc<AppState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    if crate::auth::reject_cross_site(&head).is_ok() {
        app.auth.sessions.end(&head.headers);
    }
    with_cookie(redirect("/login"), &set_cookie("", is_secure(&head)))
}

fn is_secure(head: &Parts) -> bool {
    head.extensions.get::<OverTls>().is_some()
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}
