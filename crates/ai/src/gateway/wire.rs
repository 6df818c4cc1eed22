//! What the two wires have in common: something is asked, told and refused.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::Value;

use super::refusal::Refusal;
use crate::ask::Answer;
use crate::chat::{Chat, Piece};
use crate::object::Object;
use crate::profile::ProviderName;

/// A wire that the gateway speaks.
pub(crate) trait Wire: Send + Sync + 'static {
    /// Whose wire it is.
    fn name(&self) -> ProviderName;

    /// Reads a request.
    fn read(&self, body: &Object) -> Result<Asked, Refusal>;

    /// A whole answer.
    fn whole(&self, about: &About, answer: &Answer) -> Vec<u8>;

    /// Somebody who tells an answer in pieces.
    fn teller(&self, about: About, delivery: Delivery) -> Box<dyn Teller>;

    /// A refusal: the HTTP status, and the body.
    fn refuse(&self, refusal: &Refusal, request_id: &str) -> (StatusCode, Vec<u8>);

    /// The header beside `x-request-id` that its clients look for a request's id in.
    fn id_header(&self) -> Option<&'static str> {
        None
    }
}

/// Tells an answer in pieces, as the events of a stream.
pub(crate) trait Teller: Send + 'static {
    /// One more piece.
    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>);

    /// That was all: tells what was not told yet, and ends.
    fn end(&mut self, answer: &Answer, out: &mut Vec<u8>);

    /// There will be no more, for this reason.
    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>);
}

/// What was asked, whatever the wire.
#[derive(Debug)]
pub(crate) struct Asked {
    /// A profile, or `profile/model`.
    pub(super) model: String,
    pub(super) system: Option<String>,
    pub(super) max_tokens: Option<u32>,
    pub(super) temperature: Option<f64>,
    pub(super) schema: Option<Arc<Value>>,
    pub(super) chat: Chat,
    pub(super) delivery: Delivery,
    /// What means something, and is not in here.
    pub(super) left_out: Vec<Cow<'static, str>>,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Delivery {
    /// In one piece.
    #[default]
    Whole,
    /// As it comes.
    Stream,
    /// As it comes, with what it took at the end.
    StreamWithUsage,
}

/// What is told about an answer beside what is in it.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// The request's id.
    pub(super) id: String,
    /// When it was asked, in seconds since 1970.
    pub(super) created: i64,
    /// The model that is asked; once an answer begins, the one that answers.
    pub(super) model: String,
    /// About how many tokens the question has.
    pub(super) tokens_in: u64,
}
