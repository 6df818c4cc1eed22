//! What the fake does with a question, as data.

use std::time::Duration;

use serde_json::Value;

/// What the fake does with a question.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Act {
    /// Answers.
    Say(Say),
    /// Refuses with a status, headers, and a body: the wire's own words, unless it is given.
    Refuse {
        /// The status.
        status: u16,
        /// Headers beside the usual ones.
        headers: Vec<(String, String)>,
        /// The body.
        body: Option<String>,
    },
    /// Answers with a page for people.
    Html(u16),
    /// Sends elsewhere.
    Redirect(String),
    /// Closes the connection in the middle of an answer that was to be longer.
    Truncated,
    /// A stream that ends properly, before its last event.
    Cut,
    /// A stream whose connection breaks before its last event.
    Broken,
    /// A stream that says in its middle that something failed.
    ErrorInStream,
    /// A good answer, byte by byte, with this much time between.
    Drip(Duration),
    /// So many bytes of nothing.
    Huge(usize),
    /// No answer, ever.
    Hang,
    /// Resets a new connection without reading the question. One that is open already is closed after
    /// reading.
    ResetUnread,
    /// Closes the connection after reading the question.
    ResetRead,
    /// Does what it is asked to do with a batch, and closes the connection without a word of it.
    Unheard,
    /// Does what it is asked to do with a batch, and never says so.
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

    /// Refuses with a status, in the wire's own words.
    pub fn refuse(status: u16) -> Self {
        Self::Refuse { status, headers: Vec::new(), body: None }
    }

    /// Refuses with a status and a header.
    pub fn refuse_with(status: u16, name: &str, value: &str) -> Self {
        Self::Refuse { status, headers: vec![(name.to_owned(), value.to_owned())], body: None }
    }
}

/// A good answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Say {
    /// The text; what was asked, if there is none.
    pub text: Option<String>,
    /// The question's tokens, all of them; not told if there is no number.
    pub tokens_in: Option<u64>,
    /// Those of them that were cached.
    pub cached: u64,
    /// Those of them that were written to a cache.
    pub cache_write: u64,
    /// The answer's tokens; not told if there is no number.
    pub tokens_out: Option<u64>,
    /// Why it ends.
    pub end: End,
    /// A tool that is to be called, and with what.
    pub tool: Option<(String, Value)>,
    /// How long it takes.
    pub delay: Duration,
    /// Headers beside the usual ones.
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
    /// It is complete.
    Stop,
    /// It became too long.
    Length,
    /// It is withheld.
    Filter,
}
