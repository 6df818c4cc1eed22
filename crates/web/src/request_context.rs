//! One API request: authentication, validated query, body.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use longshore::store::{Page, SendRejection};
use longshore::{Kind, Rights, Scope, TenantId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use tracing::Instrument;

use crate::app_state::AppState;
use crate::auth::Caller;
use crate::caller_limits::CallerSlot;
use crate::endpoints::{ApiResult, BASE, Endpoint, ParamKind, RequestBody, ResponseBody};
use crate::problem::Problem;
use crate::trace_context;

/// Default page size.
const DEFAULT_PAGE: u32 = 100;

/// One API request.
pub(crate) struct RequestContext {
    pub(crate) app: Arc<AppState>,
    pub(crate) endpoint: &'static Endpoint,
    pub(crate) caller: Caller,
    pub(crate) head: Parts,
    path: BTreeMap<String, String>,
    query: BTreeMap<&'static str, String>,
    /// The kinds that are opened to the caller's tenant, once one of its units needs them.
    allowed_kinds: OnceCell<BTreeSet<Kind>>,
    /// Never locked: the mutex only makes the context `Sync`, which a body is not.
    body: Mutex<Body>,
    /// Counts as a request of its caller until it is dropped.
    pub(crate) slot: Arc<CallerSlot>,
}

/// A page of a list that the store returns as a whole, ordered by `key`, which is also the cursor.
pub(crate) fn page_of<T: Serialize>(
    mut items: Vec<T>,
    after: Option<&str>,
    limit: u32,
    key: impl Fn(&T) -> String,
) -> Page<T> {
    items.sort_by_cached_key(&key);
    let start = after.map_or(0, |after| items.partition_point(|item| key(item).as_str() <= after));
    Page::first(items.drain(start..), limit, &key).within_bytes(|_, last| key(last))
}

/// Handles a request; errors become problem responses.
pub(crate) async fn respond(
    app: Arc<AppState>,
    endpoint: &'static Endpoint,
    path: BTreeMap<String, String>,
    request: Request,
) -> Response {
    let result = handle(app, endpoint, path, request).await;
    let mut response = result.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Handles a request and returns errors to the caller.
pub(crate) async fn handle(
    app: Arc<AppState>,
    endpoint: &'static Endpoint,
    path: BTreeMap<String, String>,
    request: Request,
) -> ApiResult {
    let (method, path_pattern) = (&endpoint.method, endpoint.path);
    let span = trace_context::request_span(&request, format_args!("{method} {BASE}{path_pattern}"));
    let result = handle_in_time(app, endpoint, path, request).instrument(span.clone()).await;
    trace_context::record_status(&span, result.as_ref().map_or_else(Problem::status, Response::status));
    result
}

async fn handle_in_time(
    app: Arc<AppState>,
    endpoint: &'static Endpoint,
    path: BTreeMap<String, String>,
    request: Request,
) -> ApiResult {
    let time = app.limits.time;
    let ending = app.stopped();
    let too_long = |_| Problem::timeout("the request took too long");
    let beginning = RequestContext::new(app, endpoint, path, request);
    let ctx = tokio::time::timeout(time, beginning).await.map_err(too_long)??;
    let slot = Arc::clone(&ctx.slot);
    let handling = (endpoint.run)(ctx);
    let response = match endpoint.is_mutation() {
        _ if endpoint.has_own_time_limit() => tokio::select! {
            result = handling => result,
            () = ending => Err(Problem::unavailable("the server is shutting down")),
        },
        true => tokio::time::timeout(time, handling).await.map_err(too_long)?,
        false => slot.read(handling).await,
    }?;
    if endpoint.is_mutation() {
        // It has happened, so its response is not refused.
        let _ = slot.charge(&response);
    }
    Ok(slot.hold(response))
}

impl Endpoint {
    /// Whether the endpoint has its own time limit, and takes permits for its reads itself.
    fn has_own_time_limit(&self) -> bool {
        let waits = self.query.iter().any(|param| matches!(param.kind, ParamKind::Seconds(_)));
        waits || self.response == ResponseBody::Events
    }
}

impl RequestContext {
    async fn new(
        app: Arc<AppState>,
        endpoint: &'static Endpoint,
        path: BTreeMap<String, String>,
        request: Request,
    ) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let (caller, slot) = app.admit(&head).await?;
        caller.require_role(endpoint.role)?;
        let query = query(endpoint, head.uri.query().unwrap_or_default())?;
        let allowed_kinds = OnceCell::new();
        Ok(Self { app, endpoint, caller, head, path, query, allowed_kinds, body: Mutex::new(body), slot })
    }

    /// Rejects a kind that needs the operator's rights, unless the caller has them or the operator
    /// opened the kind to the caller's tenant.
    pub(crate) async fn require_kind(&self, kind: &Kind) -> Result<(), Problem> {
        if self.caller.rights() == Rights::Operator || !kind.needs_operator() {
            return Ok(());
        }
        let tenant = self.caller.tenant.clone().unwrap_or_default();
        let opened = self.allowed_kinds.get_or_try_init(|| self.app.store.allowed_kinds(&tenant)).await?;
        match opened.contains(kind) {
            true => Ok(()),
            false => Err(Problem::forbidden(format!(
                "kind `{kind}` acts with the operator's rights and is closed to tenant `{tenant}`: \
                 `longshore tenant set {tenant} --allow-kind {kind}` opens it"
            ))),
        }
    }

    /// Rejects new work and new permits of a suspended tenant. Sends need no check: the store rejects them.
    pub(crate) async fn require_active(&self, tenant: &TenantId) -> Result<(), Problem> {
        match self.app.ledger.is_suspended(&self.caller.scope, tenant).await? {
            true => Err(Problem::from_refusal(&SendRejection::Suspended(tenant.clone()))),
            false => Ok(()),
        }
    }

    /// A path parameter.
    pub(crate) fn path<T: FromStr<Err: ToString>>(&self, name: &str) -> Result<T, Problem> {
        let text = self.path.get(name).map_or("", String::as_str);
        text.parse().map_err(|error: T::Err| Problem::bad_request(error.to_string()))
    }

    /// A query parameter, if given.
    pub(crate) fn query<T: FromStr<Err: ToString>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let given = self.query.get(name).map(|text| text.parse());
        let bad = |error: T::Err| Problem::bad_request(format!("`{name}`: {}", error.to_string()));
        given.transpose().map_err(bad)
    }

    /// The scope: the caller's, restricted by `tenant` in the query.
    pub(crate) fn scope(&self) -> Result<Scope, Problem> {
        self.caller.scope_for(self.query::<TenantId>("tenant")?)
    }

    /// The page cursor.
    pub(crate) fn after(&self) -> Option<&str> {
        self.query.get("after").map(String::as_str)
    }

    /// The page size.
    pub(crate) fn limit(&self) -> Result<u32, Problem> {
        Ok(self.query::<u32>("limit")?.unwrap_or(DEFAULT_PAGE))
    }

    /// The requested page of a list that the store returns as a whole.
    pub(crate) fn page<T>(&self, items: Vec<T>, key: impl Fn(&T) -> String) -> ApiResult
    where
        T: Serialize,
    {
        json(&page_of(items, self.after(), self.limit()?, key))
    }

    /// The body as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let bytes = self.bytes().await?;
        if bytes.is_empty() && matches!(self.endpoint.request, RequestBody::OptionalJson(_)) {
            return read(b"{}");
        }
        let kind = self.head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
            return Err(Problem::unsupported_media_type("send `Content-Type: application/json`"));
        }
        read(&bytes)
    }

    /// The body as bytes.
    pub(crate) async fn bytes(&mut self) -> Result<bytes::Bytes, Problem> {
        let max = self.app.limits.body;
        let body = self.stream();
        let body = Limited::new(self.slot.reserving(body), max);
        // Reading the body is limited even if the endpoint may wait.
        let read = tokio::time::timeout(self.app.limits.time, body.collect()).await;
        let read = read.map_err(|_| Problem::timeout("the body did not arrive in time"))?;
        let read = read.map_err(|error| match self.slot.refusal() {
            Some(refusal) => refusal,
            None if error.is::<LengthLimitError>() => {
                Problem::too_large(format!("the body is longer than {max} bytes"))
            }
            None => Problem::bad_request("the body is incomplete"),
        })?;
        Ok(read.to_bytes())
    }

    /// The body as a stream.
    pub(crate) fn stream(&mut self) -> Body {
        std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| Problem::bad_request(format!("the body: {error}")))
}

/// Parses the query, and checks it against the endpoint's parameters.
fn query(endpoint: &'static Endpoint, text: &str) -> Result<BTreeMap<&'static str, String>, Problem> {
    let mut query = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let known = endpoint.query.iter().find(|param| param.name == name);
        let param = known.ok_or_else(|| Problem::bad_request(format!("unknown query parameter `{name}`")))?;
        param.check(&value)?;
        if query.insert(param.name, value.into_owned()).is_some() {
            return Err(Problem::bad_request(format!("`{name}` is given twice")));
        }
    }
    let needed = endpoint.query.iter().filter(|param| param.kind == ParamKind::RequiredText);
    if let Some(param) = needed.into_iter().find(|param| !query.contains_key(param.name)) {
        return Err(Problem::bad_request(format!("`{}` is missing: {}", param.name, param.about)));
    }
    Ok(query)
}

impl crate::endpoints::Param {
    fn check(&self, value: &str) -> Result<(), Problem> {
        let number =
            |min: u32, max: u32| value.parse::<u32>().is_ok_and(|number| (min..=max).contains(&number));
        let expected = match self.kind {
            // The handler parses it and reports errors.
            ParamKind::Name | ParamKind::Time => return Ok(()),
            ParamKind::RequiredText if value.is_empty() => "some text".to_owned(),
            ParamKind::Text | ParamKind::RequiredText if !value.contains('\0') => return Ok(()),
            ParamKind::Text | ParamKind::RequiredText => "text without zero characters".to_owned(),
            ParamKind::Number(max) if number(1, max) => return Ok(()),
            ParamKind::Number(max) => format!("a number from 1 to {max}"),
            ParamKind::Seconds(max) if number(0, max) => return Ok(()),
            ParamKind::Seconds(max) => format!("a number of seconds up to {max}"),
            ParamKind::OneOf(values) if values.contains(&value) => return Ok(()),
            ParamKind::OneOf(values) => format!("one of {}", values.join(", ")),
        };
        Err(Problem::bad_request(format!("`{}` is not {expected}", self.name)))
    }
}

/// A JSON response with status 200.
pub(crate) fn json(value: &impl Serialize) -> ApiResult {
    json_with(StatusCode::OK, value)
}

/// A JSON response with this status.
pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> ApiResult {
    let text = serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "cannot serialise a response");
        Problem::from(longshore::Error::Broken { message: error.to_string(), source: None })
    })?;
    let mut response = (status, text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
