//! A backend that answers by the profile's name, so that a request reaches every case.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::accounts::CallRecord;
use longshore::{ProfileName, TenantId};
use longshore_ai::gateway::{InferenceBackend, ProfileSettings};
use longshore_ai::{
    Answer, AnswerPiece, AskError, Chat, Code, FinishReason, InferenceOutcome, InferenceRequest, Part,
    ProviderErrorId, ProviderName, Question, Retryability, ToolCall,
};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

/// The profiles of every tenant, and their behaviour.
pub(crate) const PROFILES: &[&str] = &[
    "plain",  // repeats the last text, word by word
    "tools",  // calls the first tool, and repeats its result
    "json",   // answers with an object
    "cut",    // ends at max_tokens
    "broken", // fails after a piece
    "stuck",  // sends one piece, then hangs
    "held",   // answers when it is released
    "lazy",   // does not stream
    "raw",    // has OpenAI's API
    "claude", // has Anthropic's API
    "error",  // fails with the model's name as its code
];

/// See [`PROFILES`].
#[derive(Default)]
pub(crate) struct FakeBackend {
    /// The requests, newest last.
    pub(crate) asked: Mutex<Vec<InferenceRequest>>,
    /// How often calls were recorded.
    pub(crate) notes: Mutex<usize>,
    /// A call of `stuck` or `held` has started.
    pub(crate) started: Notify,
    /// Lets a call of `held` finish.
    pub(crate) release: Notify,
    /// A call of `stuck` was abandoned.
    pub(crate) abandoned: Arc<Notify>,
}

#[async_trait]
impl InferenceBackend for FakeBackend {
    async fn profile_settings(
        &self,
        _tenant: &TenantId,
        profile: &ProfileName,
    ) -> Result<ProfileSettings, AskError> {
        let provider = match profile.as_str() {
            "raw" => ProviderName::Openai,
            "claude" => ProviderName::Anthropic,
            _ => ProviderName::Gemini,
        };
        require_known(profile)?;
        let model = "fake-1".to_owned();
        let (provider, max_tokens) = (Some(provider), Some(77));
        Ok(ProfileSettings { provider, model, max_tokens, ..ProfileSettings::default() })
    }

    async fn count_tokens(
        &self,
        _tenant: &TenantId,
        profile: &ProfileName,
        _question: &Question,
    ) -> Result<Option<u64>, AskError> {
        require_known(profile).map(|()| None)
    }

    async fn require_model(
        &self,
        _tenant: &TenantId,
        _profile: &ProfileName,
        model: &str,
    ) -> Result<(), AskError> {
        match model {
            "unknown" => Err(AskError::new(Code::InvalidRequest, "only `fake-1` is offered")),
            _ => Ok(()),
        }
    }

    async fn ask(
        &self,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
    ) -> InferenceOutcome {
        self.asked.lock().unwrap().push(request.clone());
        let mut outcome = InferenceOutcome::default();
        outcome.result = self.answer(request, pieces).await;
        outcome
    }

    fn record(&self, _records: Vec<CallRecord>) {
        *self.notes.lock().unwrap() += 1;
    }

    async fn profiles(&self, _tenant: &TenantId) -> Result<Vec<ProfileName>, AskError> {
        Ok(PROFILES.iter().map(|name| ProfileName::new(name).unwrap()).collect())
    }
}

fn require_known(profile: &ProfileName) -> Result<(), AskError> {
    if PROFILES.contains(&profile.as_str()) {
        return Ok(());
    }
    Err(AskError::new(Code::ProfileNotFound, format!("there is no profile `{profile}`")))
}

impl FakeBackend {
    async fn answer(
        &self,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
    ) -> Result<Answer, AskError> {
        let profile = request.profile.as_ref().unwrap();
        let (question, chat) = (&request.question, request.question.chat.as_deref().unwrap());
        require_known(profile)?;
        match profile.as_str() {
            "tools" => stream(tool_answer(chat), pieces).await,
            "json" => stream(answer_with(r#"{"name":"Ann","age":7}"#), pieces).await,
            "cut" => {
                stream(Answer { finish_reason: FinishReason::Length, ..answer_with("Once") }, pieces).await
            }
            "broken" => {
                send_piece(pieces, AnswerPiece::Text("So far".into())).await;
                Err(AskError::new(Code::ProviderError, "the provider hung up"))
            }
            "stuck" => {
                let _guard = OnDrop(Arc::clone(&self.abandoned));
                self.started.notify_one();
                send_piece(pieces, AnswerPiece::Text("So far".into())).await;
                std::future::pending().await
            }
            "held" => {
                self.started.notify_one();
                self.release.notified().await;
                stream(answer_with("At last"), pieces).await
            }
            "lazy" => Ok(tool_answer(chat)),
            "raw" => raw(question, ProviderName::Openai, OPENAI_EVENTS, pieces).await,
            "claude" => raw(question, ProviderName::Anthropic, ANTHROPIC_EVENTS, pieces).await,
            "error" => Err(error(question.model.as_deref().unwrap_or_default())),
            _ => stream(answer_with(&last_text(chat)), pieces).await,
        }
    }
}

/// The last text of the conversation.
fn last_text(chat: &Chat) -> String {
    match chat.messages.last().and_then(|message| message.parts.last()) {
        Some(Part::Text(text) | Part::ToolResult { text, .. }) => text.clone(),
        _ => String::new(),
    }
}

/// An answer with 20 input tokens: 5 cached, 3 cache writes for minutes and 2 for an hour.
fn answer_with(text: &str) -> Answer {
    Answer {
        text: text.to_owned(),
        model: "fake-1-really".to_owned(),
        tokens_in: 20,
        tokens_out: 4,
        tokens_cached: 5,
        tokens_cache_write: 3,
        tokens_cache_write_long: 2,
        ..Answer::default()
    }
}

fn tool_answer(chat: &Chat) -> Answer {
    if let Some(Part::ToolResult { text, .. }) = chat.messages.last().unwrap().parts.last() {
        return answer_with(&format!("It says {text}."));
    }
    let name = chat.tools.first().map_or("none", |tool| &tool.name).to_owned();
    let call = ToolCall { id: "call_1".into(), name, input: json!({"city": "Oslo"}) };
    Answer { tool_calls: vec![call], ..answer_with("Let me look.") }
}

async fn send_piece(pieces: Option<&mpsc::Sender<AnswerPiece>>, piece: AnswerPiece) {
    if let Some(pieces) = pieces {
        let _ = pieces.send(piece).await;
    }
}

async fn stream(answer: Answer, pieces: Option<&mpsc::Sender<AnswerPiece>>) -> Result<Answer, AskError> {
    for word in answer.text.split_inclusive(' ') {
        send_piece(pieces, AnswerPiece::Text(word.to_owned())).await;
    }
    for call in &answer.tool_calls {
        send_piece(pieces, AnswerPiece::ToolCall(call.clone())).await;
    }
    Ok(answer)
}

/// Answers with the request itself, as it would be sent.
async fn raw(
    question: &Question,
    wire: ProviderName,
    events: &[&str],
    pieces: Option<&mpsc::Sender<AnswerPiece>>,
) -> Result<Answer, AskError> {
    let Some(raw) = question.raw_for(wire) else {
        return stream(answer_with("translated"), pieces).await;
    };
    for event in events {
        send_piece(pieces, AnswerPiece::Raw((*event).to_owned())).await;
    }
    let body = raw.with_changes(&[("model", Some("real-model".into()))]).unwrap();
    Ok(Answer { raw: Some(Box::new(body.into())), ..answer_with("raw") })
}

/// OpenAI's events, with the usage that is always requested.
pub(crate) const OPENAI_EVENTS: &[&str] = &[
    r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}"#,
    r#"{"object":"chat.completion.chunk","choices":[],"usage":{"total_tokens":3}}"#,
    "[DONE]",
];

/// Anthropic's events.
pub(crate) const ANTHROPIC_EVENTS: &[&str] = &[
    r#"{"type":"message_start","message":{"id":"msg_1","unheard_of":true}}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"message_stop"}"#,
];

/// An error with the code of that name; with `-soon`, a retryable one; with `-long`, one that the provider
/// identifies.
fn error(name: &str) -> AskError {
    if let Some(name) = name.strip_suffix("-long") {
        let (kind, code) = ("invalid_request_error".to_owned(), "context_length_exceeded".to_owned());
        let id = ProviderErrorId { kind: Some(kind), code: Some(code) };
        return AskError { provider_error: Some(Box::new(id)), ..error(name) };
    }
    let (code, soon) = match name.strip_suffix("-soon") {
        Some(code) => (code, true),
        None => (name, false),
    };
    let code: Code = serde_json::from_value(json!(code)).unwrap();
    let again = if soon { Retryability::Later } else { Retryability::Never };
    let retry_after = soon.then_some(Duration::from_millis(1200));
    AskError { retry: again, retry_after, ..AskError::new(code, "as told") }
}

struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
