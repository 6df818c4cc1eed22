//! The dashboard: pages rendered on the server, readable without JavaScript, live with it.
//!
//! Pages query the store with the caller's scope, as the API does. Forms go through the API's endpoints:
//! there is no second way to change anything.

mod alerts;
mod audit;
mod batch;
mod batches;
mod chart;
mod cron;
mod dispatch;
mod format;
mod layout;
mod login;
mod overview;
mod pools;
mod queues;
mod unit;
mod units;
mod usage;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use maud::Markup;

use crate::app_state::AppState;
use crate::auth::Caller;
use crate::caller_limits::CallerSlot;
use crate::endpoints::{ENDPOINTS, Endpoint, RequestBody};
use crate::problem::Problem;
use crate::request_context;

/// Content security policy: only our own style and script.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Maximum size of a form.
const MAX_FORM_BYTES: usize = 4 * 1024;

const STYLE: &str = include_str!("../../assets/style.css");
const SCRIPT: &str = include_str!("../../assets/live.js");
const ICON: &str = include_str!("../../assets/icon.svg");

/// One page request.
pub(super) struct PageRequest {
    pub(super) app: Arc<AppState>,
    pub(super) caller: Caller,
    pub(super) path: BTreeMap<String, String>,
    pub(super) query: BTreeMap<String, String>,
    /// Counts as a request of its caller until it is dropped.
    slot: Arc<CallerSlot>,
}

impl PageRequest {
    /// A path parameter; not found if it cannot be parsed.
    fn path_param<T: std::str::FromStr>(&self, name: &str) -> Result<T, Problem> {
        let text = self.path.get(name).map_or("", String::as_str);
        text.parse().map_err(|_| Problem::not_found(format!("there is no {name} `{text}`")))
    }

    /// A query parameter of a form, if not empty.
    fn query_param<T: std::str::FromStr<Err: ToString>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let text = self.query.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
        let read = text.map(str::parse).transpose();
        read.map_err(|error: T::Err| Problem::bad_request(format!("{name}: {}", error.to_string())))
    }
}

macro_rules! page {
    ($app:expr, $run:path) => {{
        let app = Arc::clone($app);
        on(MethodFilter::GET, async move |path: RawPathParams, request: Request| {
            let path = path.iter().map(|(name, is)| (name.to_owned(), is.to_owned())).collect();
            let req = match page_request(app, path, request).await {
                Ok(req) => req,
                Err(problem) => return error_response(None, problem),
            };
            let slot = Arc::clone(&req.slot);
            let reading = async move {
                Ok(match $run(&req).await {
                    Ok(page) => html_response(StatusCode::OK, page),
                    Err(problem) => error_response(Some(&req.caller), problem),
                })
            };
            match slot.read(reading).await {
                Ok(response) => slot.hold(response),
                Err(problem) => error_response(None, problem),
            }
        })
    }};
}

/// Lists the pages' paths, and mounts them.
macro_rules! pages {
    ($($path:literal => $run:path),+ $(,)?) => {
        /// The paths of the dashboard's pages, with `{names}`.
        pub static PAGES: &[&str] = &[$($path),+];

        fn mount_pages(router: Router, app: &Arc<AppState>) -> Router {
            router$(.route($path, page!(app, $run)))+
        }
    };
}

pages! {
    "/" => overview::page,
    "/batches" => batches::page,
    "/batches/{batch}" => batch::page,
    "/queues" => queues::page,
    "/units" => units::page,
    "/units/{unit}" => unit::page,
    "/workers" => workers::page,
    "/pools" => pools::page,
    "/usage" => usage::page,
    "/cron" => cron::page,
    "/dispatch" => dispatch::page,
    "/audit" => audit::page,
}

/// The routes of all pages and forms.
pub(crate) fn routes(app: &Arc<AppState>) -> Router {
    let (opening, entering, leaving) = (Arc::clone(app), Arc::clone(app), Arc::clone(app));
    let mut router = mount_pages(Router::new(), app)
        .route(
            "/login",
            on(MethodFilter::GET, move |request| login::open(opening, request))
                .on(MethodFilter::POST, move |request| login::log_in(entering, request)),
        )
        .route("/logout", on(MethodFilter::POST, move |request| login::log_out(leaving, request)))
        .route("/assets/style.css", on(MethodFilter::GET, async || asset("text/css", STYLE)))
        .route("/assets/icon.svg", on(MethodFilter::GET, async || asset("image/svg+xml", ICON)))
        .route("/assets/live.js", on(MethodFilter::GET, async || asset("text/javascript", SCRIPT)));
    for endpoint in ENDPOINTS.iter().filter(|one| one.has_form()) {
        router = router.route(endpoint.path, form(endpoint, app));
    }
    router
}

impl Endpoint {
    /// Whether pages have a form for the endpoint: it needs no body, or only numbers. The form's path is the
    /// endpoint's, without the API's prefix.
    pub fn has_form(&self) -> bool {
        let needs_numbers_only = match self.request {
            RequestBody::Nothing | RequestBody::OptionalJson(_) => true,
            RequestBody::Json(_) => ["resizePool", "scaleScriptPool"].contains(&self.id),
            _ => false,
        };
        let has_page = ["/batches/", "/queues/", "/units/", "/workers/", "/pools/", "/dispatch/"];
        let is_permit = self.path.contains("{permit}");
        let has_page = has_page.iter().any(|page| self.path.starts_with(page)) && !is_permit;
        self.is_mutation() && needs_numbers_only && has_page
    }
}

/// Handles a form: calls the endpoint, and redirects to the form's page.
fn form(endpoint: &'static Endpoint, app: &Arc<AppState>) -> axum::routing::MethodRouter {
    let app = Arc::clone(app);
    on(MethodFilter::POST, async move |path: RawPathParams, request: Request| {
        if let Err(problem) = require_browser_form(&request) {
            return error_response(None, problem);
        }
        let back = back_to(endpoint, request.uri().path());
        let path = path.iter().map(|(name, is)| (name.to_owned(), is.to_owned())).collect();
        let request = match endpoint.request {
            RequestBody::Nothing => Ok(request),
            _ => form_to_json(&app, request).await,
        };
        let result = match request {
            Ok(request) => request_context::handle(app, endpoint, path, request).await,
            Err(problem) => Err(problem),
        };
        match result {
            Ok(_) => redirect(&back),
            Err(problem) => error_response(None, problem),
        }
    })
}

/// Converts a form's numbers to the endpoint's JSON. Empty fields are omitted.
async fn form_to_json(app: &AppState, request: Request) -> Result<Request, Problem> {
    let (mut head, body) = request.into_parts();
    // Read before authentication, so with a time limit.
    let reading = axum::body::to_bytes(body, MAX_FORM_BYTES);
    let read = tokio::time::timeout(app.limits.time, reading).await;
    let read = read.map_err(|_| Problem::timeout("the form did not arrive in time"))?;
    let read = read.map_err(|_| Problem::too_large("the form is too large"))?;
    let mut fields = serde_json::Map::new();
    for (name, value) in form_urlencoded::parse(&read) {
        if value.trim().is_empty() {
            continue;
        }
        let number = value.trim().parse::<u32>();
        let number =
            number.map_err(|_| Problem::bad_request(format!("{name}: `{value}` is not a number")))?;
        fields.insert(name.into_owned(), number.into());
    }
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.remove(CONTENT_LENGTH);
    Ok(Request::from_parts(head, serde_json::Value::from(fields).to_string().into()))
}

/// The page to return to: the batch's or unit's page, or the list.
fn back_to(endpoint: &Endpoint, path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match endpoint.path.starts_with("/batches/") || endpoint.path.starts_with("/units/") {
        true => parts[..parts.len() - 1].join("/"),
        false => format!("/{}", parts.get(1).copied().unwrap_or_default()),
    }
}

/// Rejects a form without `Origin` or `Sec-Fetch-Site`: browsers send them, and a request without them may
/// carry a cookie and cannot be checked.
pub(super) fn require_browser_form(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    match headers.contains_key("origin") || headers.contains_key("sec-fetch-site") {
        true => Ok(()),
        false => Err(Problem::forbidden("this path is for forms of the dashboard; programs use /api/v1")),
    }
}

async fn page_request(
    app: Arc<AppState>,
    path: BTreeMap<String, String>,
    request: Request,
) -> Result<PageRequest, Problem> {
    let (head, _) = request.into_parts();
    let (caller, slot) = app.admit(&head).await?;
    let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let query = query.into_owned().collect();
    Ok(PageRequest { app, caller, path, query, slot })
}

/// An HTML response with its security headers.
pub(super) fn html_response(status: StatusCode, page: Markup) -> Response {
    let mut response = (status, page.into_string()).into_response();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Redirects to another page.
pub(super) fn redirect(path: &str) -> Response {
    let to = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, to);
    response
}

/// The page for an unknown path.
pub(crate) fn not_found(problem: &Problem) -> Response {
    html_response(problem.status(), layout::problem_page(None, problem.status(), problem.detail()))
}

/// Redirects to the login if authentication is missing; otherwise shows the error.
fn error_response(caller: Option<&Caller>, problem: Problem) -> Response {
    match problem.status() {
        StatusCode::UNAUTHORIZED => redirect("/login"),
        status => html_response(status, layout::problem_page(caller, status, problem.detail())),
    }
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    response
}
