//! `/login` and `/logout`: a token for a cookie.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use maud::{Markup, html};

use super::frame::bare;
use super::{pressed_here, see, shown};
use crate::house::House;
use crate::listen::OverTls;
use crate::problem::Problem;
use crate::session::set_cookie;
use crate::token;

/// Longest form that is read.
const LONGEST: usize = 4096;

/// The form, with what was wrong with the last try.
pub(super) fn page(wrong: Option<&str>) -> Markup {
    let main = html! {
        form.login.sheet method="post" action="/login" {
            h1 { "Log in" }
            @if let Some(words) = wrong { p.said role="alert" { (words) } }
            label { "Token"
                input type="password" name="token" autocomplete="current-password" required autofocus;
            }
            button { "Log in" }
            p { "Tokens are made with " code { "longshore token add" } "." }
        }
    };
    bare("Log in", html! {}, main, false)
}

/// Takes a token, and gives a cookie for it.
pub(super) async fn enter(house: Arc<House>, request: Request) -> Response {
    if let Err(problem) = pressed_here(&request) {
        return shown(StatusCode::FORBIDDEN, page(Some(problem.words())));
    }
    let (head, body) = request.into_parts();
    match try_enter(&house, &head, body).await {
        Ok(cookie) => with_cookie(see("/"), &set_cookie(&cookie, is_secure(&head))),
        Err(problem) => shown(problem.status(), page(Some(problem.words()))),
    }
}

async fn try_enter(house: &House, head: &Parts, body: axum::body::Body) -> Result<String, Problem> {
    crate::door::not_by_another_page(head)?;
    let reading = Limited::new(body, LONGEST).collect();
    let read = tokio::time::timeout(house.limits.time, reading).await;
    let read = read.map_err(|_| Problem::slow("the form does not come"))?;
    let bytes = read.map_err(|_| Problem::bad("the form cannot be read"))?.to_bytes();
    let mut fields = form_urlencoded::parse(&bytes);
    let given = fields.find(|(name, _)| name == "token").map(|(_, token)| token);
    let hash = token::hash(given.as_deref().unwrap_or_default().trim());
    let from = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
    let now = house.now();
    house.door.known(hash, from, now).await?;
    Ok(house.door.sessions.begin(hash, now))
}

/// Ends the session.
pub(super) async fn leave(house: Arc<House>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    if crate::door::not_by_another_page(&head).is_ok() {
        house.door.sessions.end(&head.headers);
    }
    with_cookie(see("/login"), &set_cookie("", is_secure(&head)))
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
