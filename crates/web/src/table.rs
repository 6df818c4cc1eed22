//! The table of the API: every path with its method, who may use it, what it takes and answers.
//!
//! Routes are mounted from it, queries are checked against it, and the OpenAPI document is written
//! from it; tests walk it. There is no second list.

use std::pin::Pin;

use axum::http::Method;
use axum::response::Response;
use longshore::ledger::Role;

use crate::call::Call;
use crate::problem::Problem;

pub use crate::api::ENDPOINTS;

/// What all paths of the API begin with.
pub const BASE: &str = "/api/v1";

/// One path with one method.
pub struct Endpoint {
    /// How it is asked.
    pub method: Method,
    /// Its path below [`BASE`], with `{names}`.
    pub path: &'static str,
    /// Its name for programs, as `listQueues`.
    pub id: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// Who may ask.
    pub role: Role,
    /// What may stand in the query.
    pub query: &'static [Param],
    /// What is sent with it.
    pub takes: Takes,
    /// What comes back.
    pub gives: Gives,
    /// Its name in the audit log, as `batch.pause`; empty if it changes nothing that is worth an entry.
    pub(crate) deed: &'static str,
    pub(crate) run: Run,
}

/// What answers.
pub(crate) type Run = fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

/// An answer, or why there is none.
pub(crate) type Answer = Result<Response, Problem>;

/// Something that may stand in a query.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What it looks like.
    pub kind: ParamKind,
}

/// What a parameter looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// A name, as of a tenant or a queue.
    Name,
    /// Any text.
    Text,
    /// The same, and it must be there.
    Needed,
    /// A moment, as `2030-01-31T08:00:00Z`.
    Time,
    /// A number from 1 on, at most this.
    Number(u32),
    /// A number of seconds, at most this.
    Seconds(u32),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// What is sent with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// JSON of this schema, or nothing.
    MaybeJson(&'static str),
    /// Lines of JSON, each of this schema, for as long as the sender likes.
    Lines(&'static str),
}

/// What comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// One thing of this schema.
    One(&'static str),
    /// Some of a list of such things, and the way to the next ones.
    Page(&'static str),
    /// Events as they happen (`text/event-stream`).
    Events,
    /// Any JSON.
    Document,
}

impl Endpoint {
    /// The names in its path, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
    }

    /// Whether it sends units, and so knows a repeated request by its key.
    pub(crate) fn sends(&self) -> bool {
        self.deed == "unit.submit"
    }

    /// Whether it is written down in the audit log.
    pub fn is_noted(&self) -> bool {
        !self.deed.is_empty()
    }

    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        !self.method.is_safe()
    }
}
