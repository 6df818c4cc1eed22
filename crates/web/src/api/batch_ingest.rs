//! Sending a batch: open it by name, add chunks, seal it.
//!
//! A chunk and the sender's cursor after it are committed together. A sender that crashed or lost a response
//! reads the batch's cursor and continues from there, without gaps or repeats.

use axum::http::StatusCode;
use longshore::batch::{Callback, FailureLimit, FailureThreshold};
use longshore::store::{OpenBatchResult, SendRejection, SendResult};
use longshore::{Batch, BatchId, Error, NewBatch, NewUnit, SendError, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::batches::BatchView;
use super::bulk_submit::{ExistingLine, unit};
use super::submit::{Status, client, when_full};
use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::known_fields::known_fields;
use crate::lenient_int::lenient_int;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json, json_with};
use crate::trace_context::trace_parent;

/// Maximum number of units per chunk.
const MAX_CHUNK: usize = 10_000;

/// Text without NUL characters, which not every store can keep.
const NO_NUL: &str = r"^[^\x00]*$";

/// The body of a request to open a batch.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest {
    id: BatchId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    /// Type of the batch, for people and reports.
    #[serde(rename = "type", default)]
    #[schemars(regex(pattern = NO_NUL))]
    kind: String,
    /// Notes for people.
    #[serde(default)]
    #[schemars(regex(pattern = NO_NUL))]
    notes: String,
    /// The caller that started it; default: the token's label.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = NO_NUL))]
    initiated_by: Option<String>,
    #[serde(default, deserialize_with = "lenient_int", skip_serializing_if = "Option::is_none")]
    workers: Option<u32>,
    #[serde(default, deserialize_with = "lenient_int", skip_serializing_if = "Option::is_none")]
    threshold: Option<FailureThreshold>,
    #[serde(default, deserialize_with = "known_fields", skip_serializing_if = "Option::is_none")]
    callback: Option<Callback>,
}

impl BatchRequest {
    /// Builds a request. Without a tenant the server uses the token's.
    pub(crate) fn new(batch: NewBatch, tenant: Option<TenantId>) -> Self {
        let NewBatch { id, kind, notes, initiated_by, workers, threshold, callback, .. } = batch;
        let initiated_by = Some(initiated_by).filter(|by| !by.is_empty());
        Self { id, tenant, kind, notes, initiated_by, workers, threshold, callback }
    }

    fn batch(self, caller: &Caller) -> Result<NewBatch, Problem> {
        let batch = NewBatch {
            tenant: caller.tenant_for_new(self.tenant)?,
            kind: self.kind,
            notes: self.notes,
            initiated_by: self.initiated_by.unwrap_or_else(|| caller.label.clone()),
            workers: self.workers,
            threshold: self.threshold,
            callback: self.callback.map(|callback| Callback { rights: caller.rights(), ..callback }),
            ..NewBatch::new(self.id)
        };
        if let Some(Callback { queue, .. }) = &batch.callback
            && !queue.admits(&batch.tenant)
        {
            let detail = format!("queue `{queue}` is not tenant `{}`'s", batch.tenant);
            return Err(Problem::not_found(detail));
        }
        let valid = batch.threshold.is_none_or(|threshold| match threshold.limit {
            FailureLimit::Percent(share) => (0.0..=100.0).contains(&share),
            FailureLimit::Units(units) => u32::try_from(units).is_ok(),
        });
        if !valid {
            return Err(Problem::bad_request("a threshold is 0 to 100 percent, or up to 4294967295 units"));
        }
        if [&batch.kind, &batch.notes, &batch.initiated_by].iter().any(|text| text.contains('\0')) {
            return Err(Problem::bad_request("texts must not contain NUL characters"));
        }
        batch.check()?;
        Ok(batch)
    }
}

/// The response to opening a batch.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct OpenBatchResponse {
    pub(crate) status: Status,
    pub(crate) batch: BatchView,
}

pub(super) async fn open(mut ctx: RequestContext) -> ApiResult {
    let request: BatchRequest = ctx.json().await?;
    if let Some(callback) = &request.callback {
        ctx.require_kind(&callback.kind).await?;
    }
    let batch = request.batch(&ctx.caller)?;
    let (store, scope) = (&ctx.app.store, &ctx.caller.scope);
    let opened = match store.batch(scope, &batch.full_id()).await {
        // A repeat leaves no entry in the audit log.
        Ok(existing) => OpenBatchResult::Existing(existing),
        Err(Error::NotFound { .. }) => {
            ctx.require_active(&batch.tenant).await?;
            ctx.audit(Some(&batch.tenant), batch.full_id(), "").await?;
            store.open_batch(scope, batch).await?
        }
        Err(error) => return Err(error.into()),
    };
    let (code, status, batch) = match opened {
        OpenBatchResult::Created(batch) => (StatusCode::CREATED, Status::Created, batch),
        OpenBatchResult::Existing(batch) => (StatusCode::OK, Status::Existing, batch),
    };
    let batch = BatchView::new(batch, &ctx.caller, ctx.app.now());
    json_with(code, &OpenBatchResponse { status, batch })
}

/// The response to adding a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChunkResult {
    /// The batch's cursor.
    pub cursor: String,
    /// Number of new units.
    pub created: u64,
    /// Units that existed, by their keys.
    pub recognised: Vec<ExistingLine>,
    /// Units that are refused permanently.
    pub refused: Vec<RefusedLine>,
}

/// A line with a refused unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLine {
    /// The line, from 1.
    pub line: u64,
    /// Why it was refused.
    pub refusal: SendRejection,
}

pub(super) async fn add(mut ctx: RequestContext) -> ApiResult {
    let batch = sendable_batch(&ctx).await?;
    let expected = ctx.query::<String>("cursor")?.unwrap_or_default();
    let next = ctx.query::<String>("next")?.unwrap_or_default();
    if next == expected {
        let detail = "`next` equals `cursor`: it must change with every chunk";
        return Err(Problem::conflict(detail));
    }
    let when_full = when_full(&ctx)?;
    let (numbers, units) = units(&mut ctx, &batch).await?;
    let mut writer = client(&ctx).resume_batch(Batch { cursor: expected, ..batch }).when_full(when_full);
    let answers = writer.add(units, next.clone()).await.map_err(|error| match error {
        SendError::CursorMoved(cursor) => {
            let detail = format!("the batch is at cursor `{cursor}`: continue from there");
            Problem::conflict(detail).with_details(&json!({ "cursor": cursor }))
        }
        error => error.into(),
    })?;
    json(&ChunkResult::new(next, &numbers, answers))
}

/// Parses the units in the body, with their line numbers.
async fn units(ctx: &mut RequestContext, batch: &Batch) -> Result<(Vec<u64>, Vec<NewUnit>), Problem> {
    let (body, trace) = (ctx.bytes().await?, trace_parent(&ctx.head.headers));
    let (mut numbers, mut units) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        let Some(unit) = unit(ctx, line, number, None).await? else { continue };
        if unit.tenant != batch.tenant {
            let detail = format!("line {number}: the batch belongs to tenant `{}`", batch.tenant);
            return Err(Problem::bad_request(detail));
        }
        if units.len() == MAX_CHUNK {
            return Err(Problem::too_large(format!("a chunk has at most {MAX_CHUNK} units")));
        }
        numbers.push(number);
        units.push(NewUnit { trace: trace.clone(), ..unit });
    }
    Ok((numbers, units))
}

impl ChunkResult {
    fn new(cursor: String, numbers: &[u64], answers: Vec<SendResult>) -> Self {
        let mut result = Self { cursor, created: 0, recognised: Vec::new(), refused: Vec::new() };
        for (line, answer) in numbers.iter().copied().zip(answers) {
            match answer {
                SendResult::Created(_) => result.created += 1,
                SendResult::Existing(unit) => result.recognised.push(ExistingLine { line, unit }),
                SendResult::Rejected(refusal) => result.refused.push(RefusedLine { line, refusal }),
            }
        }
        result
    }
}

pub(super) async fn seal(ctx: RequestContext) -> ApiResult {
    let batch = sendable_batch(&ctx).await?;
    let sealed = match batch.sealed {
        true => batch,
        false => {
            ctx.require_active(&batch.tenant).await?;
            ctx.audit(Some(&batch.tenant), &batch.id, "").await?;
            ctx.app.store.seal_batch(&ctx.caller.scope, &batch.id).await?
        }
    };
    json(&BatchView::new(sealed, &ctx.caller, ctx.app.now()))
}

/// The batch in the path, if the caller may send as its tenant.
async fn sendable_batch(ctx: &RequestContext) -> Result<Batch, Problem> {
    let id: BatchId = ctx.path("batch")?;
    let batch = ctx.app.store.batch(&ctx.caller.scope, &id).await?;
    ctx.caller.tenant_for_new(Some(batch.tenant.clone()))?;
    Ok(batch)
}
