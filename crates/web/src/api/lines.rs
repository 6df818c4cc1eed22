//! Sending many units: lines of JSON, read only as fast as they go into the store.
//!
//! The answer comes when the last line is in, or at the first that is not: many clients read nothing
//! before they have sent everything, and would wait for ever if we answered line by line.

use axum::body::{Body, BodyDataStream};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use longshore::store::{Refusal, Sent};
use longshore::{NewUnit, UnitId};
use serde::{Deserialize, Serialize};

use super::submit::{Typed, client, idempotency_key, when_full};
use crate::call::{Call, json};
use crate::problem::Problem;
use crate::table::Answer;
use crate::traces::origin;

/// Units that go into the store together.
const CHUNK: usize = 500;
/// Bytes that go into the store together.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Units that were there already are named up to this many: a stream has no end, an answer must.
const NAMED: usize = 1_000;

/// What became of the lines so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Lines that were read, blank ones included.
    pub lines: u64,
    /// Units that are new.
    pub created: u64,
    /// Units that were there already.
    pub existing: u64,
    /// Lines whose units are not in, of those that were read.
    pub refused: Vec<u64>,
    /// The first thousand of those that were there already.
    pub recognised: Vec<Recognised>,
}

/// A line whose unit was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recognised {
    /// The line, from 1.
    pub line: u64,
    /// The unit.
    pub unit: UnitId,
}

pub(super) async fn many(mut call: Call) -> Answer {
    let time = call.house.limits.time;
    let mut lines = Lines::new(call.stream(), call.house.limits.body);
    let (recognised, when_full) = (idempotency_key(&call)?, when_full(&call)?);
    call.note(call.caller.own.as_ref(), "a stream of units", "").await?;
    let trace = origin(&call.head.headers);
    let (client, mut tally) = (client(&call), Tally::default());
    loop {
        let (mut units, mut bytes) = (Vec::new(), 0);
        let (mut bad, mut wrong) = (None, None);
        while bad.is_none() && units.len() < CHUNK && bytes < CHUNK_BYTES {
            let next = tokio::time::timeout(time, lines.next()).await;
            match next.unwrap_or_else(|_| Err(Problem::slow("the next line does not come"))) {
                Ok(Some(line)) => {
                    tally.lines += 1;
                    bytes += line.len();
                    match unit(&call, &line, tally.lines, recognised.as_deref()) {
                        Ok(Some(unit)) => {
                            units.push((tally.lines, NewUnit { trace: trace.clone(), ..unit }));
                        }
                        Ok(None) => {}
                        Err(problem) => (bad, wrong) = (Some(problem), Some(tally.lines)),
                    }
                }
                Ok(None) => break,
                Err(problem) => bad = Some(problem),
            }
        }
        let is_last = units.len() < CHUNK && bytes < CHUNK_BYTES;
        let (numbers, units): (Vec<u64>, Vec<NewUnit>) = units.into_iter().unzip();
        let answers = client.send_many(units, when_full).await;
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                tally.refused.extend(numbers.into_iter().chain(wrong));
                return Err(Problem::from(error).with(&tally));
            }
        };
        let refused = tally.count(&numbers, answers);
        tally.refused.extend(wrong);
        // What was wrong first is what is told; the lines before it are in.
        if let Some(problem) = refused.as_ref().map(Problem::refused).or(bad) {
            return Err(problem.with(&tally));
        }
        if is_last {
            return json(&tally);
        }
    }
}

impl Tally {
    /// Counts what became of some lines; the first refusal among them.
    fn count(&mut self, numbers: &[u64], answers: Vec<Sent>) -> Option<Refusal> {
        let mut first = None;
        for (line, answer) in numbers.iter().zip(answers) {
            match answer {
                Sent::Created(_) => self.created += 1,
                Sent::Existing(unit) => {
                    self.existing += 1;
                    if self.recognised.len() < NAMED {
                        self.recognised.push(Recognised { line: *line, unit });
                    }
                }
                Sent::Refused(refusal) => {
                    self.refused.push(*line);
                    first.get_or_insert(refusal);
                }
            }
        }
        first
    }
}

/// The unit of a line; none of a blank one.
pub(super) fn unit(
    call: &Call,
    line: &[u8],
    number: u64,
    recognised: Option<&str>,
) -> Result<Option<NewUnit>, Problem> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let at = |problem: Problem| problem.at(&format!("line {number}"));
    let typed: Typed =
        serde_json::from_slice(line).map_err(|error| at(Problem::bad(error.to_string())))?;
    let key = recognised.map(|key| format!("{key}/{number}"));
    typed.unit(&call.caller, key).map(Some).map_err(at)
}

/// Cuts a body into lines, none longer than `most`.
struct Lines {
    from: BodyDataStream,
    read: BytesMut,
    /// How much of it is known to hold no end of a line.
    seen: usize,
    most: usize,
}

impl Lines {
    fn new(body: Body, most: usize) -> Self {
        Self { from: body.into_data_stream(), read: BytesMut::new(), seen: 0, most }
    }

    /// The next line; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(at) = self.read[self.seen..].iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(self.seen + at).freeze();
                self.read.advance(1);
                self.seen = 0;
                return Ok(Some(line));
            }
            self.seen = self.read.len();
            if self.read.len() > self.most {
                return Err(Problem::too_large(format!("a line is longer than {}", self.most)));
            }
            match self.from.next().await {
                Some(Ok(bytes)) => self.read.extend_from_slice(&bytes),
                Some(Err(_)) => return Err(Problem::bad("the body broke off")),
                None if self.read.is_empty() => return Ok(None),
                None => {
                    self.seen = 0;
                    return Ok(Some(self.read.split().freeze()));
                }
            }
        }
    }
}
