//! Replies as they are written: flat, with the fields of their status.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Malformed;
use super::metadata::Metadata;
use super::reply::{Failure, Heading, Reply, Said, Success};
use super::version::Version;
use crate::ask::{Code, FinishReason};

/// A reply as it is written.
#[derive(Serialize, Deserialize)]
pub(super) struct Wire {
    version: Version,
    /// `null` if the request's could not be read.
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
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    estimated: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    simulated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_picos: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema_error: Option<String>,
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

impl Wire {
    pub(super) fn of(reply: &Reply) -> Self {
        let blank = Self::blank(&reply.heading, reply.seq);
        match &reply.said {
            Said::Success(success) => blank.with_success(success),
            Said::Error(failure) => blank.with_failure(failure),
            Said::Partial(piece) => Self { response: Some(piece.clone()), ..blank },
        }
    }

    /// A partial reply with nothing in it.
    fn blank(heading: &Heading, seq: Option<u64>) -> Self {
        Self {
            version: heading.version,
            request_id: heading.request_id.clone(),
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
            retry_after_ms: None,
            estimated: false,
            simulated: false,
            cost_picos: None,
            schema_error: None,
            metadata: heading.metadata.clone(),
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

    fn with_failure(self, failure: &Failure) -> Self {
        let millis = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Self {
            status: Status::Error,
            error_code: Some(failure.code),
            error_message: Some(failure.message.clone()),
            attempts: Some(failure.attempts),
            provider_status: failure.provider_status,
            retry_after_ms: failure.retry_after.map(millis),
            ..self
        }
    }

    pub(super) fn read(self) -> Result<Reply, Malformed> {
        if !self.version.is_known() {
            let version = self.version;
            return Err(Malformed(format!("version {version} is not known here, only 1.x is")));
        }
        let said = match self.status {
            Status::Success => Said::Success(Success {
                response: there(self.response, "response")?,
                model_used: there(self.model_used, "model_used")?,
                tokens_in: there(self.tokens_in, "tokens_in")?,
                tokens_out: there(self.tokens_out, "tokens_out")?,
                tokens_cached: self.tokens_cached.unwrap_or(0),
                latency_ms: there(self.latency_ms, "latency_ms")?,
                finish_reason: there(self.finish_reason, "finish_reason")?,
                attempts: self.attempts.unwrap_or(1),
                estimated: self.estimated,
                simulated: self.simulated,
                cost_picos: self.cost_picos,
                schema_error: self.schema_error,
            }),
            Status::Error => Said::Error(Failure {
                code: there(self.error_code, "error_code")?,
                message: there(self.error_message, "error_message")?,
                attempts: there(self.attempts, "attempts")?,
                provider_status: self.provider_status,
                retry_after: self.retry_after_ms.map(Duration::from_millis),
            }),
            Status::Partial => {
                there(self.seq, "seq")?;
                Said::Partial(there(self.response, "response")?)
            }
        };
        let Self { version, request_id, metadata, seq, .. } = self;
        Ok(Reply { heading: Heading { version, request_id, metadata }, seq, said })
    }
}

fn there<T>(field: Option<T>, name: &str) -> Result<T, Malformed> {
    field.ok_or_else(|| Malformed(format!("the reply has no `{name}`")))
}
