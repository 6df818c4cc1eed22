//! The batch APIs of the fake provider: batches of Anthropic and OpenAI, and files. A plan decides the result of
//! each request. Results come in another order than the requests.

use std::collections::{BTreeMap, VecDeque};

use hyper::header::CONTENT_TYPE;
use hyper::{Method, Response};
use serde_json::{Value, json};

use super::api_format::ApiFormat;
use super::response_body::{BodyStep, FakeBody};
use super::{FakeAnswer, respond};

/// How the fake provider processes a batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchPlan {
    /// How often the batch is polled before it has ended.
    pub polls: u32,
    /// The failures of requests, by custom id; the other requests succeed.
    pub failures: BTreeMap<String, BatchItemFailure>,
    /// The whole batch fails with this OpenAI error code.
    pub fails_with: Option<String>,
}

impl BatchPlan {
    /// A batch in which some requests fail.
    pub fn with(failures: impl IntoIterator<Item = (&'static str, BatchItemFailure)>) -> Self {
        let failures = failures.into_iter().map(|(id, failure)| (id.to_owned(), failure)).collect();
        Self { failures, ..Self::default() }
    }
}

/// How a request in a batch fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchItemFailure {
    /// The provider returns an error with this status and a message that quotes the prompt.
    Error(u16),
    /// The batch expires before the request is processed.
    Expired,
    /// The results do not contain the request.
    Missing,
}

/// A batch that a client created.
#[derive(Debug, Clone)]
pub struct FakeProviderBatch {
    /// The id given by the fake provider.
    pub id: String,
    /// The custom ids of its requests, in order.
    pub ids: Vec<String>,
    format: ApiFormat,
    requests: Vec<(String, Value)>,
    plan: BatchPlan,
    metadata: Value,
    polls: u32,
    cancelled: bool,
}

/// All batches and files.
#[derive(Debug, Default)]
pub(super) struct BatchApi {
    pub(super) plans: VecDeque<BatchPlan>,
    /// Failures of requests in the first batch that contains them.
    pub(super) item_failures: BTreeMap<String, BatchItemFailure>,
    pub(super) batches: Vec<FakeProviderBatch>,
    files: BTreeMap<String, String>,
}

/// Whether the path belongs to the batch or file APIs.
pub(super) fn is_batch_path(path: &str) -> bool {
    ["/v1/messages/batches", "/v1/batches", "/v1/files"].iter().any(|begin| path.starts_with(begin))
}

impl BatchApi {
    pub(super) fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Response<FakeBody> {
        let path = path.split('?').next().unwrap_or(path);
        let parts: Vec<&str> = path.trim_matches('/').split('/').skip(1).collect();
        let json = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        let posted = method == Method::POST;
        let answer = match parts.as_slice() {
            ["messages", "batches"] if posted => Some(self.anthropic(&json())),
            ["messages", "batches"] => Some(self.list(ApiFormat::Anthropic)),
            ["messages", "batches", id, "results"] => {
                return jsonl_response(&self.batch(id).map(|batch| batch.result_lines()).unwrap_or_default());
            }
            ["files"] if posted => Some(self.upload(body)),
            ["files", id, "content"] => return jsonl_response(&self.file(id)),
            ["batches"] if posted => self.openai(&json()),
            ["batches"] => Some(self.list(ApiFormat::Openai)),
            ["messages", "batches", id, "cancel"] | ["batches", id, "cancel"] => self.cancel(id),
            ["messages", "batches", id] | ["batches", id] => self.poll(id),
            _ => None,
        };
        match answer {
            Some(answer) => json_response(200, &answer),
            None => json_response(404, &ApiFormat::Openai.error(404)),
        }
    }

    fn anthropic(&mut self, request: &Value) -> Value {
        let items = request["requests"].as_array().cloned().unwrap_or_default();
        let requests = items.iter().map(|one| (string(&one["custom_id"]), one["params"].clone()));
        self.add(ApiFormat::Anthropic, requests.collect(), Value::Null)
    }

    fn upload(&mut self, form: &[u8]) -> Value {
        let id = format!("file-{}", self.files.len() + 1);
        let form = String::from_utf8_lossy(form);
        let lines = form.lines().filter(|line| line.starts_with('{'));
        self.files.insert(id.clone(), lines.collect::<Vec<_>>().join("\n"));
        json!({ "id": id, "object": "file", "purpose": "batch", "filename": "questions.jsonl" })
    }

    fn openai(&mut self, request: &Value) -> Option<Value> {
        let file = self.files.get(request["input_file_id"].as_str()?)?;
        let lines = file.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let requests = lines.map(|line| (string(&line["custom_id"]), line["body"].clone())).collect();
        Some(self.add(ApiFormat::Openai, requests, request["metadata"].clone()))
    }

    fn add(&mut self, format: ApiFormat, requests: Vec<(String, Value)>, metadata: Value) -> Value {
        let mut plan = self.plans.pop_front().unwrap_or_default();
        let item_failures = requests.iter().filter_map(|(id, _)| self.item_failures.remove_entry(id));
        plan.failures.extend(item_failures);
        let batch = FakeProviderBatch {
            id: format!("batch_{}", self.batches.len() + 1),
            ids: requests.iter().map(|(id, _)| id.clone()).collect(),
            plan,
            format,
            requests,
            metadata,
            polls: 0,
            cancelled: false,
        };
        let status = batch.status_json();
        self.batches.push(batch);
        status
    }

    fn batch(&mut self, id: &str) -> Option<&mut FakeProviderBatch> {
        self.batches.iter_mut().find(|batch| batch.id == id)
    }

    fn poll(&mut self, id: &str) -> Option<Value> {
        self.batch(id).map(FakeProviderBatch::poll)
    }

    fn cancel(&mut self, id: &str) -> Option<Value> {
        let batch = self.batch(id)?;
        batch.cancelled = true;
        Some(batch.status_json())
    }

    fn list(&mut self, format: ApiFormat) -> Value {
        let listed = self.batches.iter_mut().rev().filter(|batch| batch.format == format);
        let data: Vec<Value> = listed.map(FakeProviderBatch::poll).collect();
        json!({ "object": "list", "has_more": false, "data": data })
    }

    fn file(&mut self, id: &str) -> Vec<Value> {
        let Some((kind, batch)) = id.split_once('-') else { return Vec::new() };
        let Some(batch) = self.batch(batch) else { return Vec::new() };
        let succeeded = |line: &Value| line["response"]["status_code"] == 200;
        batch.result_lines().into_iter().filter(|line| succeeded(line) == (kind == "output")).collect()
    }
}

impl FakeProviderBatch {
    /// Returns the status and counts the poll, which brings the batch closer to its end.
    fn poll(&mut self) -> Value {
        let status = self.status_json();
        self.polls += 1;
        status
    }

    fn has_ended(&self) -> bool {
        self.cancelled || self.polls >= self.plan.polls
    }

    fn status_json(&self) -> Value {
        match self.format {
            ApiFormat::Anthropic => self.anthropic_status(),
            _ => self.openai_status(),
        }
    }

    fn anthropic_status(&self) -> Value {
        let all = self.ids.len();
        let ended = self.has_ended();
        let (status, processing) = if ended { ("ended", 0) } else { ("in_progress", all) };
        json!({ "id": self.id, "type": "message_batch", "processing_status": status,
            "request_counts": { "processing": processing, "succeeded": all - processing,
                "errored": 0, "canceled": 0, "expired": 0 },
            "created_at": "2036-11-15T00:00:00Z" })
    }

    fn openai_status(&self) -> Value {
        let expired = self.plan.failures.values().any(|failure| *failure == BatchItemFailure::Expired);
        let status = match (self.has_ended(), &self.plan.fails_with) {
            (false, _) => "in_progress",
            (true, Some(_)) => "failed",
            (true, None) if self.cancelled => "cancelled",
            (true, None) if expired => "expired",
            (true, None) => "completed",
        };
        let mut batch = json!({ "id": self.id, "object": "batch", "status": status,
            "created_at": 2_110_000_000, "metadata": self.metadata,
            "request_counts": { "total": self.ids.len(), "completed": 0, "failed": 0 } });
        if let Some(code) = self.plan.fails_with.as_ref().filter(|_| status == "failed") {
            batch["errors"] = json!({ "data": [{ "code": code, "message": "the fake fails it" }] });
        } else if self.has_ended() {
            batch["output_file_id"] = json!(format!("output-{}", self.id));
            batch["error_file_id"] = json!(format!("errors-{}", self.id));
        }
        batch
    }

    /// The results: every other request first, then the rest, all in reverse order.
    fn result_lines(&self) -> Vec<Value> {
        let (even, odd): (Vec<_>, Vec<_>) = self.requests.iter().enumerate().partition(|(at, _)| at % 2 == 0);
        let shuffled = even.into_iter().chain(odd).rev();
        shuffled.filter_map(|(_, (id, request))| self.result_line(id, request)).collect()
    }

    fn result_line(&self, id: &str, request: &Value) -> Option<Value> {
        match (self.format, self.plan.failures.get(id)) {
            (_, Some(BatchItemFailure::Missing)) => None,
            (ApiFormat::Anthropic, failure) => {
                let result = match failure {
                    Some(BatchItemFailure::Error(status)) => {
                        json!({ "type": "errored", "error": self.error(*status, request) })
                    }
                    Some(_) => json!({ "type": "expired" }),
                    None => json!({ "type": "succeeded", "message": self.answer(request) }),
                };
                Some(json!({ "custom_id": id, "result": result }))
            }
            (_, failure) => {
                let (status, body) = match failure {
                    Some(BatchItemFailure::Error(status)) => (*status, self.error(*status, request)),
                    Some(_) => {
                        let error = json!({ "code": "batch_expired", "message": "too late" });
                        return Some(json!({ "custom_id": id, "response": null, "error": error }));
                    }
                    None => (200, self.answer(request)),
                };
                let response = json!({ "status_code": status, "request_id": "r", "body": body });
                Some(json!({ "custom_id": id, "response": response, "error": null }))
            }
        }
    }

    /// An error that quotes the prompt, as providers do.
    fn error(&self, status: u16, request: &Value) -> Value {
        let mut body = self.format.error(status);
        let prompt = self.format.text(&FakeAnswer::default(), request);
        body["error"]["message"] = json!(format!("the fake says {status}: {prompt}"));
        body
    }

    fn answer(&self, request: &Value) -> Value {
        let mut answer = self.format.answer(&FakeAnswer::default(), request);
        if self.format == ApiFormat::Anthropic {
            answer["usage"]["service_tier"] = json!("batch");
        }
        answer
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn json_response(status: u16, body: &Value) -> Response<FakeBody> {
    let head = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    respond(head, vec![BodyStep::bytes(body.to_string())])
}

fn jsonl_response(lines: &[Value]) -> Response<FakeBody> {
    let head = Response::builder().header(CONTENT_TYPE, "application/x-jsonl");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    respond(head, vec![BodyStep::bytes(text)])
}
