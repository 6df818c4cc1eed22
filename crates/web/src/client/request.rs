//! One API request: its URL from the endpoint table, its response parsed, retried where that is safe.

use std::time::Duration;

use longshore::store::Page;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::config::{ApiClient, RESPONSE_TIMEOUT};
use super::error::ApiError;
use crate::endpoints::{BASE, ENDPOINTS, Endpoint};
use crate::problem::URN;

/// The operation ids that the client uses.
pub const ROUTES: &[&str] = &[
    "acknowledgeReplies",
    "addToBatch",
    "cancelBatch",
    "cancelUnit",
    "closeReplyQueue",
    "drainWorker",
    "events",
    "listBatches",
    "listPools",
    "listQueues",
    "listReplyQueues",
    "listRows",
    "listSchedules",
    "listTenants",
    "listUnits",
    "listUsage",
    "listWorkers",
    "openBatch",
    "openReplyQueue",
    "pauseBatch",
    "pauseQueue",
    "quietWorker",
    "readReplies",
    "resizePool",
    "resumeBatch",
    "resumeQueue",
    "resumeWorker",
    "retryBatch",
    "retryUnit",
    "sealBatch",
    "showBatch",
    "showUnit",
    "stopWorker",
    "submitUnit",
    "submitUnits",
    "whoami",
];

/// Maximum page size.
const MAX_PAGE: u32 = 1_000;

/// One request.
#[derive(Clone)]
pub(super) struct ApiRequest<'a> {
    route: &'static str,
    /// Values of the path parameters, in order.
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    body: Body<'a>,
    /// Whether it may be retried.
    idempotent: bool,
    /// Additional timeout that the caller requested.
    extra_timeout: Duration,
}

/// The request body.
#[derive(Clone, Copy)]
enum Body<'a> {
    Nothing,
    Json(&'a [u8]),
    Lines(&'a [u8]),
}

impl<'a> ApiRequest<'a> {
    /// A request by its operation id in [`ROUTES`].
    pub(super) fn new(route: &'static str) -> Self {
        let (path, query) = (Vec::new(), Vec::new());
        Self { route, path, query, body: Body::Nothing, idempotent: false, extra_timeout: Duration::ZERO }
    }

    /// Sets the next path parameter.
    pub(super) fn path_param(mut self, name: impl ToString) -> Self {
        self.path.push(name.to_string());
        self
    }

    /// Adds a query parameter, if given.
    pub(super) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Sets a JSON body.
    pub(super) fn json(self, bytes: &'a [u8]) -> Self {
        Self { body: Body::Json(bytes), ..self }
    }

    /// Sets an NDJSON body.
    pub(super) fn lines(self, bytes: &'a [u8]) -> Self {
        Self { body: Body::Lines(bytes), ..self }
    }

    /// Marks the request as idempotent: it is retried while the server is unavailable.
    pub(super) fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    /// Extends the timeout.
    pub(super) fn extra_timeout(self, wait: Duration) -> Self {
        Self { extra_timeout: wait, ..self }
    }

    fn endpoint(&self, at: &Url) -> Result<&'static Endpoint, ApiError> {
        let found = ENDPOINTS.iter().find(|endpoint| endpoint.id == self.route);
        found.ok_or_else(|| not_longshore(at, format!("it has no operation `{}`", self.route)))
    }

    /// The request's URL. A slash in a parameter is escaped.
    fn url(&self, base: &Url, endpoint: &Endpoint) -> Url {
        let mut url = base.clone();
        let mut names = self.path.iter();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(BASE.split('/').skip(1));
            for part in endpoint.path.split('/').skip(1) {
                let name = if part.starts_with('{') { names.next() } else { None };
                segments.push(name.map_or(part, String::as_str));
            }
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

impl ApiClient {
    /// Sends a request and parses the response. Idempotent requests are retried as long as the client's
    /// `patience` lasts.
    pub(super) async fn send<T: DeserializeOwned>(&self, request: ApiRequest<'_>) -> Result<T, ApiError> {
        let until = Instant::now() + self.patience;
        loop {
            let error = match self.send_once(&request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let delay = error.retry_delay().filter(|_| request.idempotent);
            let Some(delay) = delay.filter(|delay| Instant::now() + *delay < until) else {
                return Err(error);
            };
            tracing::debug!(%error, route = request.route, "retrying the request");
            tokio::time::sleep(delay).await;
        }
    }

    /// Up to `limit` items of a list, over as many pages as needed.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        request: ApiRequest<'_>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<T>, ApiError> {
        let mut all = Page { items: Vec::new(), next: after.map(str::to_owned) };
        loop {
            let left = limit.saturating_sub(u32::try_from(all.items.len()).unwrap_or(u32::MAX));
            let request = request.clone().query("after", all.next.as_ref());
            let page: Page<T> =
                self.send(request.query("limit", Some(left.clamp(1, MAX_PAGE))).idempotent()).await?;
            all.items.extend(page.items);
            all.next = page.next;
            if all.next.is_none() || all.items.len() >= limit as usize {
                return Ok(all);
            }
        }
    }

    async fn send_once<T: DeserializeOwned>(&self, request: &ApiRequest<'_>) -> Result<T, ApiError> {
        let request = self.build(request)?.timeout(RESPONSE_TIMEOUT + request.extra_timeout);
        let response = self.send_checked(request).await?;
        let bytes = response.bytes().await.map_err(|error| ApiError::of(&self.url, error))?;
        serde_json::from_slice(&bytes).map_err(|error| {
            not_longshore(
                &self.url,
                format!("cannot parse its response ({error}); does it have another version?"),
            )
        })
    }

    /// A request without a timeout.
    pub(super) fn build(&self, request: &ApiRequest<'_>) -> Result<RequestBuilder, ApiError> {
        let endpoint = request.endpoint(&self.url)?;
        let url = request.url(&self.url, endpoint);
        let builder = self.with_auth(self.http.request(endpoint.method.clone(), url));
        Ok(match request.body {
            Body::Nothing => builder,
            Body::Json(bytes) => builder.header(CONTENT_TYPE, "application/json").body(bytes.to_vec()),
            Body::Lines(bytes) => builder.header(CONTENT_TYPE, "application/x-ndjson").body(bytes.to_vec()),
        })
    }

    /// Sends a request and returns a successful response with its body unread.
    pub(super) async fn send_checked(&self, request: RequestBuilder) -> Result<Response, ApiError> {
        let response = request.send().await.map_err(|error| ApiError::of(&self.url, error))?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let status = response.status();
        match (status.is_success(), kind) {
            (true, "application/json" | "text/event-stream") => Ok(response),
            (false, "application/problem+json") => Err(self.problem(response).await),
            (false, _) if matches!(status.as_u16(), 502..=504) => {
                Err(ApiError::BadGateway { url: self.url.clone(), status: status.as_u16() })
            }
            _ => Err(not_longshore(
                &self.url,
                format!("it responds {} with content type `{kind}`", status.as_u16()),
            )),
        }
    }

    async fn problem(&self, response: Response) -> ApiError {
        let retry_after = longshore_ai::retry_after(response.headers());
        let bytes = match response.bytes().await {
            Ok(bytes) => bytes,
            Err(error) => return ApiError::of(&self.url, error),
        };
        match serde_json::from_slice::<crate::problem::ProblemDetails>(&bytes) {
            Ok(problem) if problem.urn.starts_with(URN) => {
                ApiError::Problem { problem: Box::new(problem), retry_after }
            }
            _ => not_longshore(&self.url, "its error responses have an unknown type".to_owned()),
        }
    }
}

/// The response is not from Longshore's API.
pub(super) fn not_longshore(url: &Url, reason: String) -> ApiError {
    ApiError::NotLongshore { url: url.clone(), reason }
}

/// Serialises a request body.
pub(super) fn to_json(url: &Url, value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value)
        .map_err(|error| not_longshore(url, format!("the request cannot be serialised: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(base: &str, request: &ApiRequest<'_>) -> String {
        let base: Url = base.parse().unwrap();
        request.url(&base, request.endpoint(&base).unwrap()).to_string()
    }

    #[test]
    fn a_name_with_a_slash_stays_one_part_of_the_path() {
        let request = ApiRequest::new("pauseQueue").path_param("acme/mail").query("tenant", Some("acme"));
        assert_eq!(
            address("http://host:7717", &request),
            "http://host:7717/api/v1/queues/acme%2Fmail/pause?tenant=acme"
        );
        let below = address("https://host/longshore/", &ApiRequest::new("whoami"));
        assert_eq!(below, "https://host/longshore/api/v1/whoami");
    }

    #[test]
    fn every_route_is_in_the_table() {
        let url: Url = "http://host/".parse().unwrap();
        for route in ROUTES {
            assert!(ApiRequest::new(route).endpoint(&url).is_ok(), "{route}");
        }
    }
}
