//! The client-facing API formats: how a request is parsed and an answer or error is encoded.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::Value;

use super::error::GatewayError;
use crate::chat::{Chat, Piece};
use crate::model_api::Answer;
use crate::profile::ProviderName;
use crate::raw_json::RawObject;

/// An API format that the gateway serves.
pub(crate) trait ApiFormat: Send + Sync + 'static {
    /// The provider that defines this API.
    fn name(&self) -> ProviderName;

    /// Parses a request.
    fn parse(&self, body: &RawObject) -> Result<ParsedRequest, GatewayError>;

    /// Encodes a complete answer.
    fn encode(&self, meta: &ResponseMeta, answer: &Answer) -> Vec<u8>;

    /// An encoder for a streamed answer.
    fn stream_encoder(&self, meta: ResponseMeta, delivery: Delivery) -> Box<dyn StreamEncoder>;

    /// Encodes an error: the HTTP status and the body.
    fn encode_error(&self, error: &GatewayError, request_id: &str) -> (StatusCode, Vec<u8>);

    /// The response header for the request id that the provider's clients read, besides
    /// `x-request-id`.
    fn id_header(&self) -> Option<&'static str> {
        None
    }
}

/// Encodes an answer as a stream of events.
pub(crate) trait StreamEncoder: Send + 'static {
    /// Encodes one piece.
    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>);

    /// Encodes what was not sent yet, and ends the stream.
    fn end(&mut self, answer: &Answer, out: &mut Vec<u8>);

    /// Ends the stream with an error.
    fn fail(&mut self, error: &GatewayError, out: &mut Vec<u8>);
}

/// A parsed request, independent of the format.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    /// A profile, or `profile/model`.
    pub(super) model: String,
    pub(super) system: Option<String>,
    pub(super) max_tokens: Option<u32>,
    pub(super) temperature: Option<f64>,
    pub(super) schema: Option<Arc<Value>>,
    pub(super) chat: Chat,
    pub(super) delivery: Delivery,
    /// Fields that matter and that a translation would lose.
    pub(super) unsupported: Vec<Cow<'static, str>>,
}

/// How the client wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Delivery {
    /// As one response.
    #[default]
    Complete,
    /// As a stream.
    Stream,
    /// As a stream, with token usage at the end.
    StreamWithUsage,
}

/// Metadata of a response.
#[derive(Debug, Clone)]
pub(crate) struct ResponseMeta {
    /// The request's id.
    pub(super) id: String,
    /// When it was requested, in seconds since 1970.
    pub(super) created: i64,
    /// The requested model; once the answer starts, the model that answers.
    pub(super) model: String,
    /// Estimated tokens of the question.
    pub(super) tokens_in: u64,
}
