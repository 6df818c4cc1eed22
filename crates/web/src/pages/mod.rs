//! The dashboard: pages written on the server, readable without JavaScript, live with it.
//!
//! Pages ask the same store with the same scope as the API does, and forms go through the API's own
//! endpoints: there is no second way to change anything.

mod alerts;
mod audit;
mod batch;
mod batches;
mod chart;
mod cron;
mod dispatch;
mod frame;
mod login;
mod overview;
mod pools;
mod queues;
mod unit;
mod units;
mod usage;
mod words;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use maud::Markup;

use crate::call;
use crate::door::Caller;
use crate::house::House;
use crate::problem::Problem;
use crate::table::{ENDPOINTS, Endpoint, Takes};

/// What a browser may load for our pages: our style, our script, and nothing else from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Longest form that is read.
const MOST_TYPED: usize = 4 * 1024;

const STYLE: &str = include_str!("../../assets/style.css");
const SCRIPT: &str = include_str!("../../assets/live.js");
const ICON: &str = include_str!("../../assets/icon.svg");

/// One request for a page.
pub(super) struct Visit {
    pub(super) house: Arc<House>,
    pub(super) caller: Caller,
    pub(super) path: BTreeMap<String, String>,
    pub(super) query: BTreeMap<String, String>,
}

impl Visit {
    /// What stands in the path, if it is a name of its sort.
    fn named<T: std::str::FromStr>(&self, name: &str) -> Result<T, Problem> {
        let text = self.path.get(name).map_or("", String::as_str);
        text.parse().map_err(|_| Problem::not_found(format!("there is no {name} `{text}`")))
    }

    /// What was typed into a field of a form, if anything was.
    fn asked<T: std::str::FromStr<Err: ToString>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let typed = self.query.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
        let read = typed.map(str::parse).transpose();
        read.map_err(|error: T::Err| Problem::bad(format!("{name}: {}", error.to_string())))
    }
}

macro_rules! page {
    ($house:expr, $run:path) => {{
        let house = Arc::clone($house);
        on(MethodFilter::GET, async move |path: RawPathParams, request: Request| {
            let path = path.iter().map(|(name, is)| (name.to_owned(), is.to_owned())).collect();
            match admit(house, path, request).await {
                Ok(visit) => match $run(&visit).await {
                    Ok(page) => shown(StatusCode::OK, page),
                    Err(problem) => refused(Some(&visit.caller), problem),
                },
                Err(problem) => refused(None, problem),
            }
        })
    }};
}

/// All pages.
pub(crate) fn routes(house: &Arc<House>) -> Router {
    let (entering, leaving) = (Arc::clone(house), Arc::clone(house));
    let mut router = Router::new()
        .route("/", page!(house, overview::page))
        .route("/batches", page!(house, batches::page))
        .route("/batches/{batch}", page!(house, batch::page))
        .route("/queues", page!(house, queues::page))
        .route("/units", page!(house, units::page))
        .route("/units/{unit}", page!(house, unit::page))
        .route("/workers", page!(house, workers::page))
        .route("/pools", page!(house, pools::page))
        .route("/usage", page!(house, usage::page))
        .route("/cron", page!(house, cron::page))
        .route("/dispatch", page!(house, dispatch::page))
        .route("/audit", page!(house, audit::page))
        .route(
            "/login",
            on(MethodFilter::GET, async || shown(StatusCode::OK, login::page(None)))
                .on(MethodFilter::POST, move |request| login::enter(entering, request)),
        )
        .route("/logout", on(MethodFilter::POST, move |request| login::leave(leaving, request)))
        .route("/assets/style.css", on(MethodFilter::GET, async || asset("text/css", STYLE)))
        .route("/assets/icon.svg", on(MethodFilter::GET, async || asset("image/svg+xml", ICON)))
        .route("/assets/live.js", on(MethodFilter::GET, async || asset("text/javascript", SCRIPT)));
    for endpoint in ENDPOINTS.iter().filter(|one| has_form(one)) {
        router = router.route(endpoint.path, form(endpoint, house));
    }
    router
}

/// Whether pages have a button for it: what needs nothing but its path, or a number or two.
fn has_form(endpoint: &Endpoint) -> bool {
    let is_plain = match endpoint.takes {
        Takes::Nothing | Takes::MaybeJson(_) => true,
        Takes::Json(_) => ["resizePool", "scaleScriptPool"].contains(&endpoint.id),
        _ => false,
    };
    let has_page = ["/batches/", "/queues/", "/units/", "/workers/", "/pools/", "/dispatch/"];
    let is_permit = endpoint.path.contains("{permit}");
    let has_page = has_page.iter().any(|page| endpoint.path.starts_with(page)) && !is_permit;
    endpoint.changes() && is_plain && has_page
}

/// A button: asks the API, and shows the page that it was pressed on.
fn form(endpoint: &'static Endpoint, house: &Arc<House>) -> axum::routing::MethodRouter {
    let house = Arc::clone(house);
    on(MethodFilter::POST, async move |path: RawPathParams, request: Request| {
        if let Err(problem) = pressed_here(&request) {
            return refused(None, problem);
        }
        let back = back_to(endpoint, request.uri().path());
        let path = path.iter().map(|(name, is)| (name.to_owned(), is.to_owned())).collect();
        let request = match endpoint.takes {
            Takes::Nothing => Ok(request),
            _ => typed(&house, request).await,
        };
        let told = match request {
            Ok(request) => call::ask(house, endpoint, path, request).await,
            Err(problem) => Err(problem),
        };
        match told {
            Ok(_) => see(&back),
            Err(problem) => refused(None, problem),
        }
    })
}

/// The numbers that were typed into a form, as the JSON that the API takes. What was left empty is not
/// meant.
async fn typed(house: &House, request: Request) -> Result<Request, Problem> {
    let (mut head, body) = request.into_parts();
    // It is read before anybody is let in: it must not take for ever.
    let reading = axum::body::to_bytes(body, MOST_TYPED);
    let read = tokio::time::timeout(house.limits.time, reading).await;
    let read = read.map_err(|_| Problem::slow("the form does not come"))?;
    let read = read.map_err(|_| Problem::too_large("that is more than a form holds"))?;
    let mut fields = serde_json::Map::new();
    for (name, value) in form_urlencoded::parse(&read) {
        if value.trim().is_empty() {
            continue;
        }
        let number = value.trim().parse::<u32>();
        let number = number.map_err(|_| Problem::bad(format!("{name}: `{value}` is no number")))?;
        fields.insert(name.into_owned(), number.into());
    }
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.remove(CONTENT_LENGTH);
    Ok(Request::from_parts(head, serde_json::Value::from(fields).to_string().into()))
}

/// A batch's or unit's page for its buttons, else the list.
fn back_to(endpoint: &Endpoint, path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match endpoint.path.starts_with("/batches/") || endpoint.path.starts_with("/units/") {
        true => parts[..parts.len() - 1].join("/"),
        false => format!("/{}", parts.get(1).copied().unwrap_or_default()),
    }
}

/// Refuses a button of another site's page. A browser says where a form was sent from; who does not
/// say it is not let by here, since a cookie may go with it.
pub(super) fn pressed_here(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    match headers.contains_key("origin") || headers.contains_key("sec-fetch-site") {
        true => Ok(()),
        false => Err(Problem::forbidden("this is for buttons of our pages; programs use /api/v1")),
    }
}

async fn admit(
    house: Arc<House>,
    path: BTreeMap<String, String>,
    request: Request,
) -> Result<Visit, Problem> {
    let (head, _) = request.into_parts();
    let caller = house.door.admit(&head, house.now()).await?;
    let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let query = query.into_owned().collect();
    Ok(Visit { house, caller, path, query })
}

/// A page with what browsers must know of it.
pub(super) fn shown(status: StatusCode, page: Markup) -> Response {
    let mut response = (status, page.into_string()).into_response();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Another page is to be looked at.
pub(super) fn see(path: &str) -> Response {
    let to = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, to);
    response
}

/// A page for who went where nothing is.
pub(crate) fn astray(problem: &Problem) -> Response {
    shown(problem.status(), frame::problem(None, problem.status(), problem.words()))
}

/// Who has to say first who they are is asked; others are told what is wrong.
fn refused(caller: Option<&Caller>, problem: Problem) -> Response {
    match problem.status() {
        StatusCode::UNAUTHORIZED => see("/login"),
        status => shown(status, frame::problem(caller, status, problem.words())),
    }
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    response
}
