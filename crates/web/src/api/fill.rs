//! Sending a batch: opened by its name, filled chunk by chunk, sealed.
//!
//! A chunk and where its sender is after it go in together, or neither does. A sender that died, or never
//! heard the answer, looks where the batch is and goes on from there: no gap, no repeat.

use axum::http::StatusCode;
use longshore::batch::{Callback, FailureLimit, FailureThreshold};
use longshore::store::{Opened, Refusal, Sent};
use longshore::{Batch, BatchId, NewBatch, NewUnit, SendError, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::batches::Shown;
use super::lines::{Recognised, unit};
use super::submit::{Status, client, when_full};
use crate::call::{Call, json, json_with};
use crate::door::Caller;
use crate::problem::Problem;
use crate::table::Answer;
use crate::traces::origin;
use crate::whole::whole;

/// Most units that go in together.
const CHUNK: usize = 10_000;

/// A batch as it comes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Typed {
    id: BatchId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    notes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    initiated_by: Option<String>,
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    workers: Option<u32>,
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    threshold: Option<FailureThreshold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<Callback>,
}

impl Typed {
    /// A batch as it goes out. Without a tenant it will be the token's own.
    pub(crate) fn of(batch: NewBatch, tenant: Option<TenantId>) -> Self {
        let NewBatch { id, kind, notes, initiated_by, workers, threshold, callback, .. } = batch;
        let initiated_by = Some(initiated_by).filter(|by| !by.is_empty());
        Self { id, tenant, kind, notes, initiated_by, workers, threshold, callback }
    }

    fn batch(self, caller: &Caller) -> Result<NewBatch, Problem> {
        let batch = NewBatch {
            tenant: caller.sends_as(self.tenant)?,
            kind: self.kind,
            notes: self.notes,
            initiated_by: self.initiated_by.unwrap_or_else(|| caller.by.clone()),
            workers: self.workers,
            threshold: self.threshold,
            callback: self.callback,
            ..NewBatch::new(self.id)
        };
        if let Some(Callback { queue, .. }) = &batch.callback
            && !queue.admits(&batch.tenant)
        {
            let words = format!("queue `{queue}` is not tenant `{}`'s", batch.tenant);
            return Err(Problem::not_found(words));
        }
        let sensible = batch.threshold.is_none_or(|threshold| match threshold.limit {
            FailureLimit::Percent(share) => (0.0..=100.0).contains(&share),
            FailureLimit::Units(units) => u32::try_from(units).is_ok(),
        });
        if !sensible {
            return Err(Problem::bad("a threshold is 0 to 100 percent, or up to 4294967295 units"));
        }
        if [&batch.kind, &batch.notes, &batch.initiated_by].iter().any(|text| text.contains('\0')) {
            return Err(Problem::bad("texts hold no zero characters"));
        }
        batch.check()?;
        Ok(batch)
    }
}

/// A batch that was opened.
#[derive(Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) status: Status,
    pub(crate) batch: Shown,
}

pub(super) async fn open(mut call: Call) -> Answer {
    let typed: Typed = call.json().await?;
    let batch = typed.batch(&call.caller)?;
    call.note(Some(&batch.tenant), &batch.id, "").await?;
    let opened = call.house.store.open_batch(&call.caller.scope, batch).await?;
    let (code, status, batch) = match opened {
        Opened::Created(batch) => (StatusCode::CREATED, Status::Created, batch),
        Opened::Existing(batch) => (StatusCode::OK, Status::Existing, batch),
    };
    let batch = Shown::new(batch, &call.caller, call.house.now());
    json_with(code, &Opening { status, batch })
}

/// What became of a chunk: it is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Where the batch is now.
    pub cursor: String,
    /// Units that are new.
    pub created: u64,
    /// Units that were there already, by their keys.
    pub recognised: Vec<Recognised>,
    /// Units that will not be in, whoever sends them again.
    pub refused: Vec<Refused>,
}

/// A line whose unit was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The line, from 1.
    pub line: u64,
    /// Why.
    pub refusal: Refusal,
}

pub(super) async fn add(mut call: Call) -> Answer {
    let batch = own(&call).await?;
    let expected = call.query::<String>("cursor")?.unwrap_or_default();
    let next = call.query::<String>("next")?.unwrap_or_default();
    if next == expected {
        let words = "`next` and `cursor` are the same: where you are after these lines differs";
        return Err(Problem::conflict(words));
    }
    let when_full = when_full(&call)?;
    let (numbers, units) = units(&mut call, &batch).await?;
    call.note(Some(&batch.tenant), &batch.id, format!("{} units", units.len())).await?;
    let mut writer =
        client(&call).take_up(Batch { cursor: expected, ..batch }).when_full(when_full);
    let answers = writer.add(units, next.clone()).await.map_err(|error| match error {
        SendError::CursorMoved(cursor) => {
            let words = format!("the batch is at cursor `{cursor}`: go on from there");
            Problem::conflict(words).with(&json!({ "cursor": cursor }))
        }
        error => error.into(),
    })?;
    json(&Filled::new(next, &numbers, answers))
}

/// The units of the body's lines, each with its line.
async fn units(call: &mut Call, batch: &Batch) -> Result<(Vec<u64>, Vec<NewUnit>), Problem> {
    let (body, trace) = (call.bytes().await?, origin(&call.head.headers));
    let (mut numbers, mut units) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        let Some(unit) = unit(call, line, number, None)? else { continue };
        if unit.tenant != batch.tenant {
            let words = format!("line {number}: the batch is tenant `{}`'s", batch.tenant);
            return Err(Problem::bad(words));
        }
        if units.len() == CHUNK {
            return Err(Problem::too_large(format!("a chunk has {CHUNK} units at most")));
        }
        numbers.push(number);
        units.push(NewUnit { trace: trace.clone(), ..unit });
    }
    Ok((numbers, units))
}

impl Filled {
    fn new(cursor: String, numbers: &[u64], answers: Vec<Sent>) -> Self {
        let mut filled = Self { cursor, created: 0, recognised: Vec::new(), refused: Vec::new() };
        for (line, answer) in numbers.iter().copied().zip(answers) {
            match answer {
                Sent::Created(_) => filled.created += 1,
                Sent::Existing(unit) => filled.recognised.push(Recognised { line, unit }),
                Sent::Refused(refusal) => filled.refused.push(Refused { line, refusal }),
            }
        }
        filled
    }
}

pub(super) async fn seal(call: Call) -> Answer {
    let batch = own(&call).await?;
    call.note(Some(&batch.tenant), &batch.id, "").await?;
    let sealed = call.house.store.seal_batch(&call.caller.scope, &batch.id).await?;
    json(&Shown::new(sealed, &call.caller, call.house.now()))
}

/// The batch that is meant, if the caller may send as its tenant.
async fn own(call: &Call) -> Result<Batch, Problem> {
    let id: BatchId = call.path("batch")?;
    let batch = call.house.store.batch(&call.caller.scope, &id).await?;
    call.caller.sends_as(Some(batch.tenant.clone()))?;
    Ok(batch)
}
