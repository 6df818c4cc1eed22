//! A counter that answers by the profile's name, so that every case is reached from a request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::ledger::CallRecord;
use longshore::{ProfileName, TenantId};
use longshore_ai::gateway::{Counter, Terms};
use longshore_ai::{
    Again, Answer, AskError, Chat, Code, Errand, FinishReason, Part, Piece, ProviderName, Question,
    Settled, ToolCall,
};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

/// The profiles of every tenant, and what each does.
pub(crate) const PROFILES: &[&str] = &[
    "plain",  // repeats the last text, word by word
    "tools",  // calls the first tool, and repeats what it said
    "json",   // answers with an object
    "cut",    // ends for want of tokens
    "broken", // fails after a piece
    "stuck",  // says something, and no more
    "held",   // answers when it is let go
    "lazy",   // hands on no pieces
    "raw",    // speaks OpenAI's wire
    "claude", // speaks Anthropic's wire
    "error",  // fails with the model's name as its code
];

/// See [`PROFILES`].
#[derive(Default)]
pub(crate) struct Fake {
    /// What was asked, the newest last.
    pub(crate) asked: Mutex<Vec<Errand>>,
    /// How many notes were made.
    pub(crate) notes: Mutex<usize>,
    /// A call of `stuck` or `held` has begun.
    pub(crate) begun: Notify,
    /// Lets a call of `held` go.
    pub(crate) let_go: Notify,
    /// A call of `stuck` was abandoned.
    pub(crate) abandoned: Arc<Notify>,
}

#[async_trait]
impl Counter for Fake {
    async fn terms(&self, _tenant: &TenantId, profile: &ProfileName) -> Result<Terms, AskError> {
        let provider = match profile.as_str() {
            "raw" => ProviderName::Openai,
            "claude" => ProviderName::Anthropic,
            _ => ProviderName::Gemini,
        };
        known(profile)?;
        let model = "fake-1".to_owned();
        Ok(Terms { provider: Some(provider), model, max_tokens: Some(77), temperature: None })
    }

    async fn ask(&self, errand: &Errand, pieces: Option<&mpsc::Sender<Piece>>) -> Settled {
        self.asked.lock().unwrap().push(errand.clone());
        let mut settled = Settled::default();
        settled.result = self.answer(errand, pieces).await;
        settled
    }

    fn note(&self, _records: Vec<CallRecord>) {
        *self.notes.lock().unwrap() += 1;
    }

    async fn profiles(&self, _tenant: &TenantId) -> Result<Vec<ProfileName>, AskError> {
        Ok(PROFILES.iter().map(|name| ProfileName::new(name).unwrap()).collect())
    }
}

fn known(profile: &ProfileName) -> Result<(), AskError> {
    if PROFILES.contains(&profile.as_str()) {
        return Ok(());
    }
    Err(AskError::new(Code::ProfileNotFound, format!("there is no profile `{profile}`")))
}

impl Fake {
    async fn answer(
        &self,
        errand: &Errand,
        pieces: Option<&mpsc::Sender<Piece>>,
    ) -> Result<Answer, AskError> {
        let profile = errand.profile.as_ref().unwrap();
        let (question, chat) = (&errand.question, errand.question.chat.as_deref().unwrap());
        known(profile)?;
        match profile.as_str() {
            "tools" => tell(tool_answer(chat), pieces).await,
            "json" => tell(said(r#"{"name":"Ann","age":7}"#), pieces).await,
            "cut" => {
                tell(Answer { finish_reason: FinishReason::Length, ..said("Once") }, pieces).await
            }
            "broken" => {
                hand_on(pieces, Piece::Text("So far".into())).await;
                Err(AskError::new(Code::ProviderError, "the provider hung up"))
            }
            "stuck" => {
                let _guard = OnDrop(Arc::clone(&self.abandoned));
                self.begun.notify_one();
                hand_on(pieces, Piece::Text("So far".into())).await;
                std::future::pending().await
            }
            "held" => {
                self.begun.notify_one();
                self.let_go.notified().await;
                tell(said("At last"), pieces).await
            }
            "lazy" => Ok(tool_answer(chat)),
            "raw" => raw(question, ProviderName::Openai, OPENAI_EVENTS, pieces).await,
            "claude" => raw(question, ProviderName::Anthropic, ANTHROPIC_EVENTS, pieces).await,
            "error" => Err(error(question.model.as_deref().unwrap_or_default())),
            _ => tell(said(&last(chat)), pieces).await,
        }
    }
}

/// The last thing that was said.
fn last(chat: &Chat) -> String {
    match chat.messages.last().and_then(|message| message.parts.last()) {
        Some(Part::Text(text) | Part::ToolResult { text, .. }) => text.clone(),
        _ => String::new(),
    }
}

/// An answer of which 5 of 20 tokens were cached, 3 written for minutes and 2 for an hour.
fn said(text: &str) -> Answer {
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
        return said(&format!("It says {text}."));
    }
    let name = chat.tools.first().map_or("none", |tool| &tool.name).to_owned();
    let call = ToolCall { id: "call_1".into(), name, input: json!({"city": "Oslo"}) };
    Answer { tool_calls: vec![call], ..said("Let me look.") }
}

async fn hand_on(pieces: Option<&mpsc::Sender<Piece>>, piece: Piece) {
    if let Some(pieces) = pieces {
        let _ = pieces.send(piece).await;
    }
}

async fn tell(answer: Answer, pieces: Option<&mpsc::Sender<Piece>>) -> Result<Answer, AskError> {
    for word in answer.text.split_inclusive(' ') {
        hand_on(pieces, Piece::Text(word.to_owned())).await;
    }
    for call in &answer.tool_calls {
        hand_on(pieces, Piece::ToolCall(call.clone())).await;
    }
    Ok(answer)
}

/// Answers with the request itself, as it would go out.
async fn raw(
    question: &Question,
    wire: ProviderName,
    events: &[&str],
    pieces: Option<&mpsc::Sender<Piece>>,
) -> Result<Answer, AskError> {
    let Some(raw) = question.raw_for(wire) else { return tell(said("translated"), pieces).await };
    for event in events {
        hand_on(pieces, Piece::Raw((*event).to_owned())).await;
    }
    let body = raw.rewritten(&[("model", Some("real-model".into()))]).unwrap();
    Ok(Answer { raw: Some(Box::new(body.into())), ..said("raw") })
}

/// What OpenAI sends, with the usage that is always asked for.
pub(crate) const OPENAI_EVENTS: &[&str] = &[
    r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}"#,
    r#"{"object":"chat.completion.chunk","choices":[],"usage":{"total_tokens":3}}"#,
    "[DONE]",
];

/// What Anthropic sends.
pub(crate) const ANTHROPIC_EVENTS: &[&str] = &[
    r#"{"type":"message_start","message":{"id":"msg_1","unheard_of":true}}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"message_stop"}"#,
];

/// An error with the code of that name; with `-soon`, one that passes.
fn error(name: &str) -> AskError {
    let (code, soon) = match name.strip_suffix("-soon") {
        Some(code) => (code, true),
        None => (name, false),
    };
    let code: Code = serde_json::from_value(json!(code)).unwrap();
    let again = if soon { Again::Later } else { Again::Never };
    let retry_after = soon.then_some(Duration::from_millis(1200));
    AskError { again, retry_after, ..AskError::new(code, "as told") }
}

struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
