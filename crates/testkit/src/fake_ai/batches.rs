//! The batch APIs of the fake: batches of Anthropic and OpenAI, files, and what becomes of each question
//! as a plan has it. Results come in another order than the questions.

use std::collections::{BTreeMap, VecDeque};

use hyper::header::CONTENT_TYPE;
use hyper::{Method, Response};
use serde_json::{Value, json};

use super::body::{FakeBody, Step};
use super::wire::Wire;
use super::{Say, made};

/// What becomes of a batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchPlan {
    /// How often it is looked at before it has ended.
    pub polls: u32,
    /// What becomes of the questions with these ids; the others are answered.
    pub fates: BTreeMap<String, Fate>,
    /// Nothing is done at all, for this reason (a code of OpenAI's).
    pub fails: Option<String>,
}

impl BatchPlan {
    /// A batch in which some questions are not answered.
    pub fn with(fates: impl IntoIterator<Item = (&'static str, Fate)>) -> Self {
        let fates = fates.into_iter().map(|(id, fate)| (id.to_owned(), fate)).collect();
        Self { fates, ..Self::default() }
    }
}

/// What becomes of a question that is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It is refused with a status.
    Refused(u16),
    /// The batch expired before.
    Expired,
    /// There is no word of it.
    Missing,
}

/// A batch that the fake was given.
#[derive(Debug, Clone)]
pub struct FakeBatch {
    /// What the fake calls it.
    pub id: String,
    /// The ids of its questions, in their order.
    pub ids: Vec<String>,
    wire: Wire,
    questions: Vec<(String, Value)>,
    plan: BatchPlan,
    metadata: Value,
    looks: u32,
    cancelled: bool,
}

/// All batches and files.
#[derive(Debug, Default)]
pub(super) struct Office {
    pub(super) plans: VecDeque<BatchPlan>,
    /// What becomes of questions in whatever batch they are in first.
    pub(super) doomed: BTreeMap<String, Fate>,
    pub(super) batches: Vec<FakeBatch>,
    files: BTreeMap<String, String>,
}

/// Whether the path is one of batches or files.
pub(super) fn is_about_batches(path: &str) -> bool {
    ["/v1/messages/batches", "/v1/batches", "/v1/files"].iter().any(|begin| path.starts_with(begin))
}

impl Office {
    pub(super) fn answer(
        &mut self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Response<FakeBody> {
        let path = path.split('?').next().unwrap_or(path);
        let parts: Vec<&str> = path.trim_matches('/').split('/').skip(1).collect();
        let json = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        let posted = method == Method::POST;
        let told = match parts.as_slice() {
            ["messages", "batches"] if posted => Some(self.anthropic(&json())),
            ["messages", "batches"] => Some(self.list(Wire::Anthropic)),
            ["messages", "batches", id, "results"] => {
                return lines(&self.batch(id).map(|batch| batch.lines()).unwrap_or_default());
            }
            ["files"] if posted => Some(self.upload(body)),
            ["files", id, "content"] => return lines(&self.file(id)),
            ["batches"] if posted => self.openai(&json()),
            ["batches"] => Some(self.list(Wire::Openai)),
            ["messages", "batches", id, "cancel"] | ["batches", id, "cancel"] => self.cancel(id),
            ["messages", "batches", id] | ["batches", id] => self.look(id),
            _ => None,
        };
        match told {
            Some(told) => reply(200, &told),
            None => reply(404, &Wire::Openai.error(404)),
        }
    }

    fn anthropic(&mut self, asked: &Value) -> Value {
        let requests = asked["requests"].as_array().cloned().unwrap_or_default();
        let questions = requests.iter().map(|one| (text(&one["custom_id"]), one["params"].clone()));
        self.add(Wire::Anthropic, questions.collect(), Value::Null)
    }

    fn upload(&mut self, form: &[u8]) -> Value {
        let id = format!("file-{}", self.files.len() + 1);
        let form = String::from_utf8_lossy(form);
        let lines = form.lines().filter(|line| line.starts_with('{'));
        self.files.insert(id.clone(), lines.collect::<Vec<_>>().join("\n"));
        json!({ "id": id, "object": "file", "purpose": "batch", "filename": "questions.jsonl" })
    }

    fn openai(&mut self, asked: &Value) -> Option<Value> {
        let file = self.files.get(asked["input_file_id"].as_str()?)?;
        let lines = file.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let questions =
            lines.map(|line| (text(&line["custom_id"]), line["body"].clone())).collect();
        Some(self.add(Wire::Openai, questions, asked["metadata"].clone()))
    }

    fn add(&mut self, wire: Wire, questions: Vec<(String, Value)>, metadata: Value) -> Value {
        let mut plan = self.plans.pop_front().unwrap_or_default();
        let doomed = questions.iter().filter_map(|(id, _)| self.doomed.remove_entry(id));
        plan.fates.extend(doomed);
        let batch = FakeBatch {
            id: format!("batch_{}", self.batches.len() + 1),
            ids: questions.iter().map(|(id, _)| id.clone()).collect(),
            plan,
            wire,
            questions,
            metadata,
            looks: 0,
            cancelled: false,
        };
        let told = batch.told();
        self.batches.push(batch);
        told
    }

    fn batch(&mut self, id: &str) -> Option<&mut FakeBatch> {
        self.batches.iter_mut().find(|batch| batch.id == id)
    }

    fn look(&mut self, id: &str) -> Option<Value> {
        self.batch(id).map(FakeBatch::look)
    }

    fn cancel(&mut self, id: &str) -> Option<Value> {
        let batch = self.batch(id)?;
        batch.cancelled = true;
        Some(batch.told())
    }

    fn list(&mut self, wire: Wire) -> Value {
        let listed = self.batches.iter_mut().rev().filter(|batch| batch.wire == wire);
        let data: Vec<Value> = listed.map(FakeBatch::look).collect();
        json!({ "object": "list", "has_more": false, "data": data })
    }

    fn file(&mut self, id: &str) -> Vec<Value> {
        let Some((kind, batch)) = id.split_once('-') else { return Vec::new() };
        let Some(batch) = self.batch(batch) else { return Vec::new() };
        let good = |line: &Value| line["response"]["status_code"] == 200;
        batch.lines().into_iter().filter(|line| good(line) == (kind == "output")).collect()
    }
}

impl FakeBatch {
    /// Each look brings a batch nearer to its end.
    fn look(&mut self) -> Value {
        let told = self.told();
        self.looks += 1;
        told
    }

    fn has_ended(&self) -> bool {
        self.cancelled || self.looks >= self.plan.polls
    }

    fn told(&self) -> Value {
        match self.wire {
            Wire::Anthropic => self.told_by_anthropic(),
            _ => self.told_by_openai(),
        }
    }

    fn told_by_anthropic(&self) -> Value {
        let all = self.ids.len();
        let ended = self.has_ended();
        let (status, processing) = if ended { ("ended", 0) } else { ("in_progress", all) };
        json!({ "id": self.id, "type": "message_batch", "processing_status": status,
            "request_counts": { "processing": processing, "succeeded": all - processing,
                "errored": 0, "canceled": 0, "expired": 0 },
            "created_at": "2036-11-15T00:00:00Z" })
    }

    fn told_by_openai(&self) -> Value {
        let expired = self.plan.fates.values().any(|fate| *fate == Fate::Expired);
        let status = match (self.has_ended(), &self.plan.fails) {
            (false, _) => "in_progress",
            (true, Some(_)) => "failed",
            (true, None) if self.cancelled => "cancelled",
            (true, None) if expired => "expired",
            (true, None) => "completed",
        };
        let mut told = json!({ "id": self.id, "object": "batch", "status": status,
            "created_at": 2_110_000_000, "metadata": self.metadata,
            "request_counts": { "total": self.ids.len(), "completed": 0, "failed": 0 } });
        if let Some(code) = self.plan.fails.as_ref().filter(|_| status == "failed") {
            told["errors"] = json!({ "data": [{ "code": code, "message": "the fake fails it" }] });
        } else if self.has_ended() {
            told["output_file_id"] = json!(format!("output-{}", self.id));
            told["error_file_id"] = json!(format!("errors-{}", self.id));
        }
        told
    }

    /// The results: every other question first, then the rest, and all of it backwards.
    fn lines(&self) -> Vec<Value> {
        let (even, odd): (Vec<_>, Vec<_>) =
            self.questions.iter().enumerate().partition(|(at, _)| at % 2 == 0);
        let mixed = even.into_iter().chain(odd).rev();
        mixed.filter_map(|(_, (id, asked))| self.line(id, asked)).collect()
    }

    fn line(&self, id: &str, asked: &Value) -> Option<Value> {
        match (self.wire, self.plan.fates.get(id)) {
            (_, Some(Fate::Missing)) => None,
            (Wire::Anthropic, fate) => {
                let result = match fate {
                    Some(Fate::Refused(status)) => {
                        json!({ "type": "errored", "error": self.wire.error(*status) })
                    }
                    Some(_) => json!({ "type": "expired" }),
                    None => json!({ "type": "succeeded", "message": self.answer(asked) }),
                };
                Some(json!({ "custom_id": id, "result": result }))
            }
            (_, fate) => {
                let (status, body) = match fate {
                    Some(Fate::Refused(status)) => (*status, self.wire.error(*status)),
                    Some(_) => {
                        let error = json!({ "code": "batch_expired", "message": "too late" });
                        return Some(json!({ "custom_id": id, "response": null, "error": error }));
                    }
                    None => (200, self.answer(asked)),
                };
                let response = json!({ "status_code": status, "request_id": "r", "body": body });
                Some(json!({ "custom_id": id, "response": response, "error": null }))
            }
        }
    }

    fn answer(&self, asked: &Value) -> Value {
        let mut answer = self.wire.answer(&Say::default(), asked);
        if self.wire == Wire::Anthropic {
            answer["usage"]["service_tier"] = json!("batch");
        }
        answer
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn reply(status: u16, told: &Value) -> Response<FakeBody> {
    let head = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    made(head, vec![Step::bytes(told.to_string())])
}

fn lines(lines: &[Value]) -> Response<FakeBody> {
    let head = Response::builder().header(CONTENT_TYPE, "application/x-jsonl");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    made(head, vec![Step::bytes(text)])
}
