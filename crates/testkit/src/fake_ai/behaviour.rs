//! The behaviour of the fake provider for one request, as data.

use std::time::Duration;

use serde_json::Value;

/// How the fake provider handles one request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FakeBehaviour {
    /// Answers successfully.
    Answer(FakeAnswer),
    /// Answers with an error status, headers and a body; by default the error body of the API format.
    Error {
        /// The status.
        status: u16,
        /// Additional headers.
        headers: Vec<(String, String)>,
        /// The body.
        body: Option<String>,
    },
    /// Answers with an HTML page and this status.
    Html(u16),
    /// Redirects to a URL.
    Redirect(String),
    /// Closes the connection in the middle of an answer, before its Content-Length is reached.
    Truncated,
    /// Ends a stream properly before its last event.
    TruncatedStream,
    /// Breaks the connection of a stream before its last event.
    Broken,
    /// Sends a stream without its last event, and keeps the connection open.
    StalledStream,
    /// Sends an error event in the middle of a stream.
    ErrorInStream,
    /// Sends a successful answer byte by byte, with this pause between bytes.
    Drip(Duration),
    /// Sends this many blanks.
    Huge(usize),
    /// Never answers.
    Hang,
    /// Resets a new connection without reading the request. Closes an open connection after reading the
    /// request.
    ResetUnread,
    /// Closes the connection after reading the request.
    ResetRead,
    /// Executes a batch operation, and closes the connection without an answer.
    ExecuteThenClose,
    /// Executes a batch operation, and never answers.
    ExecuteThenHang,
}

impl Default for FakeBehaviour {
    fn default() -> Self {
        Self::Answer(FakeAnswer::default())
    }
}

impl FakeBehaviour {
    /// Answers with this text.
    pub fn answer(text: impl Into<String>) -> Self {
        Self::Answer(FakeAnswer { text: Some(text.into()), ..FakeAnswer::default() })
    }

    /// Answers with an error status and the error body of the API format.
    pub fn error(status: u16) -> Self {
        Self::Error { status, headers: Vec::new(), body: None }
    }

    /// Answers with an error status and a header.
    pub fn error_with_header(status: u16, name: &str, value: &str) -> Self {
        Self::Error { status, headers: vec![(name.to_owned(), value.to_owned())], body: None }
    }
}

/// A successful answer.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeAnswer {
    /// The text; `None` repeats the prompt.
    pub text: Option<String>,
    /// Input tokens in total; `None` omits the usage.
    pub tokens_in: Option<u64>,
    /// Input tokens read from a cache.
    pub cached: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens; `None` omits the usage.
    pub tokens_out: Option<u64>,
    /// Why the answer ends.
    pub end: AnswerEnd,
    /// A tool call: the tool's name and input.
    pub tool: Option<(String, Value)>,
    /// The delay before the answer.
    pub delay: Duration,
    /// Additional headers.
    pub headers: Vec<(String, String)>,
    /// Reports the tokens that [`super::billed_tokens`] counts.
    pub metered: bool,
}

impl Default for FakeAnswer {
    fn default() -> Self {
        Self {
            text: None,
            tokens_in: Some(11),
            cached: 0,
            cache_write: 0,
            tokens_out: Some(7),
            end: AnswerEnd::Stop,
            tool: None,
            delay: Duration::ZERO,
            headers: Vec::new(),
            metered: false,
        }
    }
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The answer is complete.
    Stop,
    /// The answer reached the token limit.
    Length,
    /// A content filter blocked the answer.
    Filter,
}
