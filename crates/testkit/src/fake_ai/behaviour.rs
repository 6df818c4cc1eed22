//! The behaviour of the fake provider for one request, as data.

use std::time::Duration;

use serde_json::Value;

/// How the fake provider handles one request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Act {
    /// Answers successfully.
    Say(Say),
    /// Answers with an error status, headers and a body; by default the error body of the API format.
    Refuse {
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
    Cut,
    /// Breaks the connection of a stream before its last event.
    Broken,
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
    Unheard,
    /// Executes a batch operation, and never answers.
    Mute,
}

impl Default for Act {
    fn default() -> Self {
        Self::Say(Say::default())
    }
}

impl Act {
    /// Answers with this text.
    pub fn say(text: impl Into<String>) -> Self {
        Self::Say(Say { text: Some(text.into()), ..Say::default() })
    }

    /// Answers with an error status and the error body of the API format.
    pub fn refuse(status: u16) -> Self {
        Self::Refuse { status, headers: Vec::new(), body: None }
    }

    /// Answers with an error status and a header.
    pub fn refuse_with(status: u16, name: &str, value: &str) -> Self {
        Self::Refuse { status, headers: vec![(name.to_owned(), value.to_owned())], body: None }
    }
}

/// A successful answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Say {
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
    pub end: End,
    /// A tool call: the tool's name and input.
    pub tool: Option<(String, Value)>,
    /// The delay before the answer.
    pub delay: Duration,
    /// Additional headers.
    pub headers: Vec<(String, String)>,
}

impl Default for Say {
    fn default() -> Self {
        Self {
            text: None,
            tokens_in: Some(11),
            cached: 0,
            cache_write: 0,
            tokens_out: Some(7),
            end: End::Stop,
            tool: None,
            delay: Duration::ZERO,
            headers: Vec::new(),
        }
    }
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The answer is complete.
    Stop,
    /// The answer reached the token limit.
    Length,
    /// A content filter blocked the answer.
    Filter,
}
