//! `/login` and `/logout`: exchanges a token for a session cookie.
//!
//! `/login?token=TOKEN` is the link that `serve` prints: it logs in and redirects to a URL without the token.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use longshore::accounts::TokenHash;
use maud::{Markup, html};

use super::layout::document;
use super::{html_response, redirect, require_browser_form};
use crate::app_state::AppState;
use crate::browser_session::{self, set_cookie};
use crate::problem::Problem;
use crate::token;

/// Maximum size of a form.
const MAX_FORM_BYTES: usize = 4096;

/// Shows the login form, or logs in with the token of the link.
pub(super) async fn open(app: Arc<AppState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    match link_token(&head) {
        Some(token) => response(&app, &head, log_in_with(&app, &head, &token).await),
        None => html_response(StatusCode::OK, page(None)),
    }
}

/// The token in the URL, unless another site's page leads here: it must not choose the user's session.
fn link_token(head: &Parts) -> Option<String> {
    let site = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let query = matches!(site, None | Some(b"none" | b"same-origin")).then(|| head.uri.query())??;
    token_field(query.as_bytes())
}

fn token_field(form: &[u8]) -> Option<String> {
    let mut fields = form_urlencoded::parse(form);
    fields.find(|(name, _)| name == "token").map(|(_, token)| token.trim().to_owned())
}

/// The login form, with the error of the last attempt.
fn page(error: Option<&str>) -> Markup {
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
    response(&app, &head, try_log_in(&app, &head, body).await)
}

/// Sets the cookie of a new session and redirects, or shows the form with the error.
fn response(app: &AppState, head: &Parts, cookie: Result<String, Problem>) -> Response {
    match cookie {
        Ok(cookie) => with_cookie(redirect("/"), &set_cookie(&cookie, is_https(app, head))),
        Err(problem) => html_response(problem.status(), page(Some(problem.detail()))),
    }
}

async fn try_log_in(app: &AppState, head: &Parts, body: axum::body::Body) -> Result<String, Problem> {
    app.auth.reject_cross_site(head)?;
    let reading = Limited::new(body, MAX_FORM_BYTES).collect();
    let read = tokio::time::timeout(app.limits.time, reading).await;
    let read = read.map_err(|_| Problem::timeout("the form did not arrive in time"))?;
    let bytes = read.map_err(|_| Problem::bad_request("the form cannot be read"))?.to_bytes();
    log_in_with(app, head, &token_field(&bytes).unwrap_or_default()).await
}

/// Begins a session of a token; returns its cookie.
async fn log_in_with(app: &AppState, head: &Parts, token: &str) -> Result<String, Problem> {
    let (from, now) = (app.auth.proxies.client_address(head), app.now());
    let caller = app.auth.authenticate_token(token::hash(token), from, now).await?;
    let _slot = app.begin_request(&caller, head)?;
    let token = caller.token.ok_or_else(|| Problem::unauthorized("the token is not valid"))?;
    Ok(browser_session::begin(&*app.ledger, token, now).await?)
}

/// Ends the session, and deletes the cookie.
pub(super) async fn log_out(app: Arc<AppState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let is_https = is_https(&app, &head);
    // Another site's page ends no session, and deletes no cookie either.
    if let Err(problem) = app.auth.reject_cross_site(&head) {
        return html_response(problem.status(), page(Some(problem.detail())));
    }
    if let Some(session) = browser_session::cookie_hash(&head.headers, is_https)
        && let Err(problem) = end_session(&app, &head, session).await
        && problem.status() != StatusCode::UNAUTHORIZED
    {
        return html_response(problem.status(), page(Some(problem.detail())));
    }
    with_cookie(redirect("/login"), &set_cookie("", is_https))
}

/// Ends a session. A cookie without a session counts as a wrong token, and reaches no writer of the store.
async fn end_session(app: &AppState, head: &Parts, session: TokenHash) -> Result<(), Problem> {
    let (from, now) = (app.auth.proxies.client_address(head), app.now());
    let caller = app.auth.authenticate_token(session, from, now).await?;
    let _slot = app.begin_request(&caller, head)?;
    Ok(browser_session::end(&*app.ledger, session).await?)
}

fn is_https(app: &AppState, head: &Parts) -> bool {
    app.auth.proxies.is_https(&head.extensions, &head.headers)
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
