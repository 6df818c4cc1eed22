//! One question: its address from the table, its answer read or explained, repeated where that is safe.

use std::time::Duration;

use longshore::store::Page;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::error::ApiError;
use super::server::{ANSWER, ApiClient};
use crate::problem::URN;
use crate::table::{BASE, ENDPOINTS, Endpoint};

/// What the client asks, by the names that the table and the OpenAPI document have for it.
pub const ROUTES: &[&str] = &[
    "addToBatch",
    "cancelBatch",
    "cancelUnit",
    "drainWorker",
    "events",
    "listBatches",
    "listPools",
    "listQueues",
    "listRows",
    "listSchedules",
    "listTenants",
    "listUnits",
    "listUsage",
    "listWorkers",
    "openBatch",
    "pauseBatch",
    "pauseQueue",
    "quietWorker",
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

/// Most of a list at once.
const PAGE: u32 = 1_000;

/// One question.
#[derive(Clone)]
pub(super) struct Ask<'a> {
    route: &'static str,
    /// What stands for the names in the path, in their order.
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    body: Body<'a>,
    /// Whether a second one does no harm.
    repeatable: bool,
    /// How long the answer may take by request, beside the usual.
    wait: Duration,
}

/// What is sent.
#[derive(Clone, Copy)]
enum Body<'a> {
    Nothing,
    Json(&'a [u8]),
    Lines(&'a [u8]),
}

impl<'a> Ask<'a> {
    /// A question by its name in [`ROUTES`].
    pub(super) fn new(route: &'static str) -> Self {
        let (path, query) = (Vec::new(), Vec::new());
        Self { route, path, query, body: Body::Nothing, repeatable: false, wait: Duration::ZERO }
    }

    /// What the next name in the path stands for.
    pub(super) fn of(mut self, name: impl ToString) -> Self {
        self.path.push(name.to_string());
        self
    }

    /// Something in the query, if there is something.
    pub(super) fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// JSON that goes with it.
    pub(super) fn json(self, bytes: &'a [u8]) -> Self {
        Self { body: Body::Json(bytes), ..self }
    }

    /// Lines that go with it.
    pub(super) fn lines(self, bytes: &'a [u8]) -> Self {
        Self { body: Body::Lines(bytes), ..self }
    }

    /// Asked again while the server is away: a second one does no harm.
    pub(super) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// The answer may take so much longer.
    pub(super) fn waiting(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    fn endpoint(&self, at: &Url) -> Result<&'static Endpoint, ApiError> {
        let found = ENDPOINTS.iter().find(|endpoint| endpoint.id == self.route);
        found.ok_or_else(|| odd(at, format!("it has no `{}`", self.route)))
    }

    /// Where it is asked. A name may hold a slash, which is part of it.
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
    /// Asks, again and again where that is safe and the patience lasts, and reads the answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, ApiError> {
        let until = Instant::now() + self.patience;
        loop {
            let error = match self.once(&ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let rest = error.worth_another_try().filter(|_| ask.repeatable);
            let Some(rest) = rest.filter(|rest| Instant::now() + *rest < until) else {
                return Err(error);
            };
            tracing::debug!(%error, route = ask.route, "the server is asked again");
            tokio::time::sleep(rest).await;
        }
    }

    /// Up to `limit` of a list, in as many questions as that takes.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        ask: Ask<'_>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<T>, ApiError> {
        let mut all = Page { items: Vec::new(), next: after.map(str::to_owned) };
        loop {
            let left = limit.saturating_sub(u32::try_from(all.items.len()).unwrap_or(u32::MAX));
            let ask = ask.clone().with("after", all.next.as_ref());
            let page: Page<T> =
                self.ask(ask.with("limit", Some(left.clamp(1, PAGE))).repeatable()).await?;
            all.items.extend(page.items);
            all.next = page.next;
            if all.next.is_none() || all.items.len() >= limit as usize {
                return Ok(all);
            }
        }
    }

    async fn once<T: DeserializeOwned>(&self, ask: &Ask<'_>) -> Result<T, ApiError> {
        let request = self.request(ask)?.timeout(ANSWER + ask.wait);
        let response = self.sent(request).await?;
        let bytes = response.bytes().await.map_err(|error| ApiError::of(&self.url, error))?;
        serde_json::from_slice(&bytes).map_err(|error| {
            odd(
                &self.url,
                format!("its answer makes no sense here ({error}); is it of another version?"),
            )
        })
    }

    /// A question without a limit on its time.
    pub(super) fn request(&self, ask: &Ask<'_>) -> Result<RequestBuilder, ApiError> {
        let endpoint = ask.endpoint(&self.url)?;
        let url = ask.url(&self.url, endpoint);
        let request = self.signed(self.http.request(endpoint.method.clone(), url));
        Ok(match ask.body {
            Body::Nothing => request,
            Body::Json(bytes) => {
                request.header(CONTENT_TYPE, "application/json").body(bytes.to_vec())
            }
            Body::Lines(bytes) => {
                request.header(CONTENT_TYPE, "application/x-ndjson").body(bytes.to_vec())
            }
        })
    }

    /// An answer that went well, its body still to be read.
    pub(super) async fn sent(&self, request: RequestBuilder) -> Result<Response, ApiError> {
        let response = request.send().await.map_err(|error| ApiError::of(&self.url, error))?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let status = response.status();
        match (status.is_success(), kind) {
            (true, "application/json" | "text/event-stream") => Ok(response),
            (false, "application/problem+json") => Err(self.problem(response).await),
            (false, _) if matches!(status.as_u16(), 502..=504) => {
                Err(ApiError::Behind { url: self.url.clone(), status: status.as_u16() })
            }
            _ => Err(odd(&self.url, format!("it answers {} with `{kind}`", status.as_u16()))),
        }
    }

    async fn problem(&self, response: Response) -> ApiError {
        let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok());
        let retry_after = after.and_then(|after| after.parse().ok()).map(Duration::from_secs);
        let bytes = match response.bytes().await {
            Ok(bytes) => bytes,
            Err(error) => return ApiError::of(&self.url, error),
        };
        match serde_json::from_slice::<crate::problem::ProblemDetails>(&bytes) {
            Ok(problem) if problem.urn.starts_with(URN) => {
                ApiError::Problem { problem: Box::new(problem), retry_after }
            }
            _ => odd(&self.url, "its problems are not of ours".to_owned()),
        }
    }
}

/// Somebody answers, but not as we would.
pub(super) fn odd(url: &Url, reason: String) -> ApiError {
    ApiError::NotLongshore { url: url.clone(), reason }
}

/// What is sent, as bytes.
pub(super) fn written(url: &Url, value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| odd(url, format!("it cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(base: &str, ask: &Ask<'_>) -> String {
        let base: Url = base.parse().unwrap();
        ask.url(&base, ask.endpoint(&base).unwrap()).to_string()
    }

    #[test]
    fn a_name_with_a_slash_stays_one_part_of_the_path() {
        let ask = Ask::new("pauseQueue").of("acme/mail").with("tenant", Some("acme"));
        assert_eq!(
            address("http://host:7717", &ask),
            "http://host:7717/api/v1/queues/acme%2Fmail/pause?tenant=acme"
        );
        let below = address("https://host/longshore/", &Ask::new("whoami"));
        assert_eq!(below, "https://host/longshore/api/v1/whoami");
    }

    #[test]
    fn every_route_is_in_the_table() {
        let url: Url = "http://host/".parse().unwrap();
        for route in ROUTES {
            assert!(Ask::new(route).endpoint(&url).is_ok(), "{route}");
        }
    }
}
