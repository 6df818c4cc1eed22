//! Bulk submission: newline-delimited JSON, read as fast as the store accepts it.
//!
//! The response is sent after the last line, or at the first error: many clients read nothing before they
//! have sent everything, and would deadlock with a response per line.

use axum::body::{Body, BodyDataStream};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use longshore::store::{SendRejection, SendResult};
use longshore::{NewUnit, UnitId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::submit::{UnitRequest, client, idempotency_key, when_full};
use crate::caller_limits::CallerSlot;
use crate::endpoints::ApiResult;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};
use crate::trace_context::trace_parent;

/// Units per transaction.
const CHUNK_UNITS: usize = 500;
/// Bytes per transaction.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of existing units that are listed: a stream is unbounded, the response must not be.
const MAX_LISTED: usize = 1_000;

/// The result of a stream so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BulkSubmitReport {
    /// Lines read, including blank ones.
    pub lines: u64,
    /// Number of new units.
    pub created: u64,
    /// Number of units that existed.
    pub existing: u64,
    /// Lines that were read with units that were refused.
    pub refused: Vec<u64>,
    /// The first thousand units that existed.
    #[schemars(length(max = MAX_LISTED))]
    pub recognised: Vec<ExistingLine>,
}

/// A line with a unit that existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExistingLine {
    /// The line, from 1.
    pub line: u64,
    /// The unit.
    pub unit: UnitId,
}

pub(super) async fn submit_stream(mut ctx: RequestContext) -> ApiResult {
    let time = ctx.app.limits.time;
    let mut lines = LineReader::new(ctx.stream(), ctx.app.limits.body);
    let (default_key, when_full) = (idempotency_key(&ctx)?, when_full(&ctx)?);
    let trace = trace_parent(&ctx.head.headers);
    let (client, mut report) = (client(&ctx), BulkSubmitReport::default());
    loop {
        let (mut units, mut bytes) = (Vec::new(), 0);
        let (mut first_problem, mut bad_line) = (None, None);
        while first_problem.is_none() && units.len() < CHUNK_UNITS && bytes < CHUNK_BYTES {
            let next = tokio::time::timeout(time, lines.next(&ctx.slot, bytes)).await;
            match next.unwrap_or_else(|_| Err(Problem::timeout("the next line did not arrive in time"))) {
                Ok(Some(line)) => {
                    report.lines += 1;
                    bytes += line.len();
                    match unit(&ctx, &line, report.lines, default_key.as_deref()).await {
                        Ok(Some(unit)) => {
                            units.push((report.lines, NewUnit { trace: trace.clone(), ..unit }));
                        }
                        Ok(None) => {}
                        Err(problem) => {
                            (first_problem, bad_line) = (Some(problem), Some(report.lines));
                        }
                    }
                }
                Ok(None) => break,
                Err(problem) => first_problem = Some(problem),
            }
        }
        let is_last = units.len() < CHUNK_UNITS && bytes < CHUNK_BYTES;
        let (numbers, units): (Vec<u64>, Vec<NewUnit>) = units.into_iter().unzip();
        let answers = client.send_many(units, when_full).await;
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                report.refused.extend(numbers.into_iter().chain(bad_line));
                return Err(Problem::from(error).with_details(&report));
            }
        };
        let refused = report.count(&numbers, answers);
        report.refused.extend(bad_line);
        // The first error is reported; the lines before it are stored.
        if let Some(problem) = refused.as_ref().map(Problem::from_refusal).or(first_problem) {
            return Err(problem.with_details(&report));
        }
        if is_last {
            return json(&report);
        }
    }
}

impl BulkSubmitReport {
    /// Counts the results of some lines; returns the first refusal.
    fn count(&mut self, numbers: &[u64], answers: Vec<SendResult>) -> Option<SendRejection> {
        let mut first = None;
        for (line, answer) in numbers.iter().zip(answers) {
            match answer {
                SendResult::Created(_) => self.created += 1,
                SendResult::Existing(unit) => {
                    self.existing += 1;
                    if self.recognised.len() < MAX_LISTED {
                        self.recognised.push(ExistingLine { line: *line, unit });
                    }
                }
                SendResult::Rejected(refusal) => {
                    self.refused.push(*line);
                    first.get_or_insert(refusal);
                }
            }
        }
        first
    }
}

/// Parses a line; `None` if it is blank.
pub(super) async fn unit(
    ctx: &RequestContext,
    line: &[u8],
    number: u64,
    default_key: Option<&str>,
) -> Result<Option<NewUnit>, Problem> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let at = |problem: Problem| problem.with_location(&format!("line {number}"));
    let request: UnitRequest =
        serde_json::from_slice(line).map_err(|error| at(Problem::bad_request(error.to_string())))?;
    let key = default_key.map(|key| format!("{key}/{number}"));
    request.permitted_unit(ctx, key).await.map(Some).map_err(at)
}

/// Splits a body into lines of at most `max_line` bytes.
struct LineReader {
    from: BodyDataStream,
    buffer: BytesMut,
    /// How many of these bytes are known to contain no line break.
    scanned: usize,
    max_line: usize,
}

impl LineReader {
    fn new(body: Body, max_line: usize) -> Self {
        Self { from: body.into_data_stream(), buffer: BytesMut::new(), scanned: 0, max_line }
    }

    /// The next line; `None` at the end. Reserves memory for it beside `held` bytes of earlier lines.
    async fn next(&mut self, slot: &CallerSlot, held: usize) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + at).freeze();
                self.buffer.advance(1);
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            slot.reserve(self.buffer.len() + held)?;
            if self.buffer.len() > self.max_line {
                return Err(Problem::too_large(format!("a line is longer than {} bytes", self.max_line)));
            }
            match self.from.next().await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(_)) => return Err(Problem::bad_request("the body is incomplete")),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    self.scanned = 0;
                    return Ok(Some(self.buffer.split().freeze()));
                }
            }
        }
    }
}
