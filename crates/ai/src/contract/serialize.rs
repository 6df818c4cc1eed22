//! A reply's JSON: flat, with the fields of its status.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ContractError;
use super::metadata::Metadata;
use super::reply::{Reply, ReplyBody, ReplyFailure, ReplyHeader, Success};
use super::version::Version;
use crate::model_api::{Code, FinishReason, ProviderErrorId};

/// A reply's JSON fields.
#[derive(Serialize, Deserialize)]
pub(super) struct ReplyJson {
    version: Version,
    /// `null` if the request's id could not be parsed.
    request_id: Option<String>,
    status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model_used: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_in: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_out: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_cached: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latency_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finish_reason: Option<FinishReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error_code: Option<Code>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider_status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider_error_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider_error_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    estimated: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    simulated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_picos: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget_used: Option<f64>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Success,
    Error,
    Partial,
}

impl ReplyJson {
    pub(super) fn of(reply: &Reply) -> Self {
        let empty = Self { budget_used: reply.budget_used, ..Self::empty(&reply.header, reply.seq) };
        match &reply.body {
            ReplyBody::Success(success) => empty.with_success(success),
            ReplyBody::Error(failure) => empty.with_failure(failure),
            ReplyBody::Partial(piece) => Self { response: Some(piece.clone()), ..empty },
        }
    }

    /// A partial reply without content.
    fn empty(header: &ReplyHeader, seq: Option<u64>) -> Self {
        Self {
            version: header.version,
            request_id: header.request_id.clone(),
            status: Status::Partial,
            seq,
            response: None,
            model_used: None,
            tokens_in: None,
            tokens_out: None,
            tokens_cached: None,
            latency_ms: None,
            finish_reason: None,
            error_code: None,
            error_message: None,
            attempts: None,
            provider_status: None,
            provider_error_type: None,
            provider_error_code: None,
            retry_after_ms: None,
            estimated: false,
            simulated: false,
            cost_picos: None,
            schema_error: None,
            budget_used: None,
            metadata: header.metadata.clone(),
        }
    }

    fn with_success(self, success: &Success) -> Self {
        Self {
            status: Status::Success,
            response: Some(success.response.clone()),
            model_used: Some(success.model_used.clone()),
            tokens_in: Some(success.tokens_in),
            tokens_out: Some(success.tokens_out),
            tokens_cached: Some(success.tokens_cached),
            latency_ms: Some(success.latency_ms),
            finish_reason: Some(success.finish_reason),
            attempts: Some(success.attempts),
            estimated: success.estimated,
            simulated: success.simulated,
            cost_picos: success.cost_picos,
            schema_error: success.schema_error.clone(),
            ..self
        }
    }

    fn with_failure(self, failure: &ReplyFailure) -> Self {
        let ProviderErrorId { kind, code } = failure.provider_error.as_deref().cloned().unwrap_or_default();
        let millis = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Self {
            status: Status::Error,
            error_code: Some(failure.code),
            error_message: Some(failure.message.clone()),
            attempts: Some(failure.attempts),
            provider_status: failure.provider_status,
            provider_error_type: kind,
            provider_error_code: code,
            retry_after_ms: failure.retry_after.map(millis),
            ..self
        }
    }

    pub(super) fn into_reply(self) -> Result<Reply, ContractError> {
        if !self.version.is_supported() {
            let version = self.version;
            return Err(ContractError(format!("version {version} is not supported, only 1.x")));
        }
        let body = match self.status {
            Status::Success => ReplyBody::Success(Success {
                response: required(self.response, "response")?,
                model_used: required(self.model_used, "model_used")?,
                tokens_in: required(self.tokens_in, "tokens_in")?,
                tokens_out: required(self.tokens_out, "tokens_out")?,
                tokens_cached: self.tokens_cached.unwrap_or(0),
                latency_ms: required(self.latency_ms, "latency_ms")?,
                finish_reason: required(self.finish_reason, "finish_reason")?,
                attempts: self.attempts.unwrap_or(1),
                estimated: self.estimated,
                simulated: self.simulated,
                cost_picos: self.cost_picos,
                schema_error: self.schema_error,
            }),
            Status::Error => ReplyBody::Error(ReplyFailure {
                code: required(self.error_code, "error_code")?,
                message: required(self.error_message, "error_message")?,
                attempts: required(self.attempts, "attempts")?,
                provider_status: self.provider_status,
                provider_error: provider_error(self.provider_error_type, self.provider_error_code),
                retry_after: self.retry_after_ms.map(Duration::from_millis),
            }),
            Status::Partial => {
                required(self.seq, "seq")?;
                ReplyBody::Partial(required(self.response, "response")?)
            }
        };
        let Self { version, request_id, metadata, seq, budget_used, .. } = self;
        Ok(Reply { header: ReplyHeader { version, request_id, metadata }, seq, budget_used, body })
    }
}

fn provider_error(kind: Option<String>, code: Option<String>) -> Option<Box<ProviderErrorId>> {
    let is_given = kind.is_some() || code.is_some();
    is_given.then(|| Box::new(ProviderErrorId { kind, code }))
}

fn required<T>(field: Option<T>, name: &str) -> Result<T, ContractError> {
    field.ok_or_else(|| ContractError(format!("the reply has no `{name}`")))
}
