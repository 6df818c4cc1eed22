//! The endpoint table: every path with its method, required role, request and response.
//!
//! Routes are mounted from it, queries are validated against it, the OpenAPI document is derived from it, and
//! tests iterate over it.

use std::pin::Pin;

use axum::http::Method;
use axum::response::Response;
use longshore::accounts::Role;

use crate::problem::Problem;
use crate::request_context::RequestContext;

pub use crate::api::ENDPOINTS;
pub use crate::pages::PAGES;

/// Prefix of all paths.
pub const BASE: &str = "/api/v1";

/// One path with one method.
pub struct Endpoint {
    /// The HTTP method.
    pub method: Method,
    /// Its path below [`BASE`], with `{names}`.
    pub path: &'static str,
    /// The operation id, such as `listQueues`.
    pub id: &'static str,
    /// The summary.
    pub about: &'static str,
    /// The required role.
    pub role: Role,
    /// The query parameters.
    pub query: &'static [Param],
    /// The request body.
    pub request: RequestBody,
    /// The response body.
    pub response: ResponseBody,
    /// The action in the audit log, such as `batch.pause`; empty if it is not audited.
    pub(crate) audit_action: &'static str,
    pub(crate) run: Handler,
}

/// The function that handles a request.
pub(crate) type Handler = fn(RequestContext) -> Pin<Box<dyn Future<Output = ApiResult> + Send>>;

/// A response, or an error.
pub(crate) type ApiResult = Result<Response, Problem>;

/// A query parameter.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its format.
    pub kind: ParamKind,
}

/// The format of a query parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// A name of a tenant, queue and so on.
    Name,
    /// Any text, optional.
    Text,
    /// Any text, required.
    RequiredText,
    /// A time, such as `2030-01-31T08:00:00Z`.
    Time,
    /// A number from 1 to this maximum.
    Number(u32),
    /// A number of seconds, up to this maximum.
    Seconds(u32),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// The body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBody {
    /// No body.
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// Optional JSON of this schema.
    OptionalJson(&'static str),
    /// Newline-delimited JSON of this schema, of any length.
    Ndjson(&'static str),
}

/// The body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseBody {
    /// An object of this schema.
    One(&'static str),
    /// A page of objects of this schema.
    Page(&'static str),
    /// Server-sent events (`text/event-stream`).
    Events,
    /// Any JSON.
    Document,
}

impl Endpoint {
    /// The parameters in its path, in order.
    pub fn path_params(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
    }

    /// Whether it enqueues units, and so accepts `Idempotency-Key`.
    pub(crate) fn accepts_idempotency_key(&self) -> bool {
        self.is_mutation() && self.path.starts_with("/units") && self.path_params().next().is_none()
    }

    /// Whether it is recorded in the audit log.
    pub fn is_audited(&self) -> bool {
        !self.audit_action.is_empty()
    }

    /// Whether it is a mutation.
    pub fn is_mutation(&self) -> bool {
        !self.method.is_safe()
    }
}
