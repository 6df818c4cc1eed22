//! `submit --lines`: submits a stream of payloads, as a resumable batch or as plain units.
//!
//! The batch's cursor is the number of input lines consumed. A chunk and the cursor are committed
//! together, so the same command, run again, resumes exactly where it stopped.

use std::fs::File;
use std::io::{BufRead, BufReader};

use anyhow::{Context, anyhow};
use indicatif::ProgressBar;
use longshore::store::{SendRejection, SendResult};
use longshore::{Batch, BatchId, BatchWriter, Client, FailureThreshold, NewBatch, NewUnit, SendError};
use serde::Serialize;
use tokio::sync::mpsc;

use super::submit::{self, SubmitTemplate};
use super::{connect, wait};
use crate::args::submit::SubmitArgs;
use crate::error::{WithHint, hinted, usage};
use crate::exit::ExitCode;
use crate::host_identity;
use crate::ndjson_reader::{InputEnd, NdjsonReader, PayloadChunk};
use crate::settings::Settings;

/// Chunks read ahead: bounds the memory, however large the input.
const READ_AHEAD: usize = 2;

/// Runs the command.
pub async fn run(typed: SubmitArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    if typed.wait && typed.batch.is_none() {
        return Err(usage("--wait with --lines needs --batch NAME"));
    }
    let (_store, client) = connect(settings).await?;
    let bar = settings.output.bar("{spinner} {human_pos} units sent  {per_sec}  {msg}");
    let lines = LineSubmitter { typed: &typed, settings, client: &client, bar };
    match &typed.batch {
        Some(name) => lines.as_batch(name).await,
        None => lines.as_units().await,
    }
}

struct LineSubmitter<'a> {
    typed: &'a SubmitArgs,
    settings: &'a Settings,
    client: &'a Client,
    bar: ProgressBar,
}

/// The submitter's result.
#[derive(Serialize)]
struct LinesResult<'a> {
    batch: &'a BatchId,
    /// Units in the batch, by all runs.
    sent: u64,
    /// Units sent by this run.
    new: u64,
}

impl LineSubmitter<'_> {
    async fn as_batch(&self, name: &BatchId) -> anyhow::Result<ExitCode> {
        let writer = self.client.open_batch(self.describe(name)).await?;
        let mut writer = writer.when_full(self.typed.when_full());
        let mut new = 0;
        let batch = if writer.batch().sealed {
            let status = writer.batch().status;
            self.settings.output.note(format!("batch `{name}` was submitted before and is {status}"));
            writer.batch().clone()
        } else {
            new = self.fill(&mut writer).await?;
            writer.seal().await?
        };
        self.bar.finish_and_clear();
        let answer = LinesResult { batch: name, sent: batch.counts.total(), new };
        self.settings.output.answer(&answer, || result_text(&answer))?;
        if !self.typed.wait {
            return Ok(ExitCode::Good);
        }
        let limit = self.typed.wait_limit.map(|span| span.0);
        wait::batch(self.client, name, limit).await
    }

    fn describe(&self, name: &BatchId) -> NewBatch {
        let about = &self.typed.about;
        let mut batch = NewBatch::new(name.clone());
        batch.tenant = self.settings.tenant.clone().unwrap_or_default();
        let kind = self.typed.kind.as_ref().map_or(String::new(), ToString::to_string);
        batch.kind = about.batch_type.clone().unwrap_or(kind);
        batch.initiated_by = host_identity::initiator();
        batch.notes = about.notes.clone().unwrap_or_default();
        batch.threshold = about
            .threshold
            .map(|threshold| FailureThreshold { limit: threshold.0, then: about.on_threshold.into() });
        batch
    }

    /// Sends the rest of the input. Returns the number of units sent.
    async fn fill(&self, writer: &mut BatchWriter) -> anyhow::Result<u64> {
        let from = cursor(writer.batch())?;
        if from > 0 {
            let name = &writer.batch().id;
            self.settings.output.note(format!("resuming batch `{name}` after line {from}"));
        }
        let template = SubmitTemplate::new(self.typed, self.settings, self.client).await?;
        let mut chunks = self.read(from)?;
        let (mut new, mut at) = (0, from);
        while let Some(chunk) = chunks.recv().await {
            if chunk.lines > at {
                let units = chunk.payloads.into_iter().map(|payload| template.unit(payload));
                let units = units.zip(chunk.payload_lines).collect();
                new += self.add(writer, units, chunk.lines, &mut at).await?;
            }
            if let Some(end) = chunk.end {
                check_end(end, at, |line| {
                    format!(
                        "the {} lines before it are in batch `{}`, which stays unsealed; \
                         fix line {line} and run the same command again",
                        line - 1,
                        writer.batch().id
                    )
                })?;
            }
        }
        Ok(new)
    }

    /// Adds units, each with its line; moves `at` to `end`, the last line read. Units that do not fit into the queue
    /// together are added in smaller chunks. Returns their number.
    async fn add(
        &self,
        writer: &mut BatchWriter,
        mut units: Vec<(NewUnit, u64)>,
        end: u64,
        at: &mut u64,
    ) -> anyhow::Result<u64> {
        let (total, mut size) = (units.len() as u64, units.len().max(1));
        while *at < end {
            let mut rest = units.split_off(size.min(units.len()));
            let chunk: Vec<NewUnit> = units.iter().map(|(unit, _)| unit.clone()).collect();
            let to = if rest.is_empty() { end } else { units.last().map_or(end, |(_, line)| *line) };
            match writer.add(chunk.clone(), to.to_string()).await {
                Err(SendError::Rejected(SendRejection::Full { .. }))
                    if chunk.len() > 1 && writer.exceeds_capacity(&chunk).await? =>
                {
                    size = chunk.len() / 2;
                    units.append(&mut rest);
                }
                answers => {
                    check_rejected(&answers.map_err(|error| add_error(error, writer.batch()))?, *at)?;
                    self.bar.inc(chunk.len() as u64);
                    (*at, units) = (to, rest);
                }
            }
        }
        Ok(total)
    }

    async fn as_units(&self) -> anyhow::Result<ExitCode> {
        let template = SubmitTemplate::new(self.typed, self.settings, self.client).await?;
        let mut chunks = self.read(0)?;
        let (mut sent, mut at) = (0, 0);
        let mut known = 0;
        while let Some(chunk) = chunks.recv().await {
            let numbered = (sent + 1..).zip(chunk.payloads);
            let unit =
                |(number, payload)| NewUnit { dedup: self.typed.dedup_of(number), ..template.unit(payload) };
            let units: Vec<_> = numbered.map(unit).collect();
            let count = units.len() as u64;
            let answers = self.client.send_many(units, self.typed.when_full()).await;
            let answers = answers.map_err(|error| self.with_resume_hint(error, at))?;
            check_rejected(&answers, at).map_err(|error| self.with_resume_hint(error, at))?;
            known += answers.iter().filter(|sent| matches!(sent, SendResult::Existing(_))).count() as u64;
            (sent, at) = (sent + count, chunk.lines);
            self.bar.inc(count);
            if let Some(end) = chunk.end {
                check_end(end, at, |line| {
                    format!("the lines before it were sent: continue with `tail -n +{line}`")
                })?;
            }
        }
        self.bar.finish_and_clear();
        let new = sent - known;
        let answer = serde_json::json!({ "sent": sent, "new": new });
        self.settings.output.answer(&answer, || match known {
            0 => format!("{sent} units sent"),
            _ => format!("{new} units sent, {known} existed already"),
        })?;
        Ok(ExitCode::Good)
    }

    /// The error of a plain submission, with a hint on how to resume.
    fn with_resume_hint(&self, error: impl Into<anyhow::Error>, at: u64) -> anyhow::Error {
        let error = error.into();
        if at == 0 && self.typed.key.is_none() {
            return error;
        }
        let resume_hint = match &self.typed.key {
            Some(_) => {
                "run the same command again: units that were sent are recognised by their keys".to_owned()
            }
            None => format!(
                "the first {at} lines were sent, perhaps some after them; with --key NAME the same \
                 command may be run again"
            ),
        };
        match crate::error::hint(&error) {
            Some(why) => hinted(error, format!("{why}; {resume_hint}")),
            None => hinted(error, resume_hint),
        }
    }

    /// Reads the input after line `from` on a thread of its own. The thread ends with the input or
    /// the process: a read from a terminal cannot be cancelled.
    fn read(&self, from: u64) -> anyhow::Result<mpsc::Receiver<PayloadChunk>> {
        let name = self.typed.lines.as_deref().unwrap_or("-");
        let input: Box<dyn BufRead + Send> = match name {
            "-" => Box::new(BufReader::new(std::io::stdin())),
            path => {
                let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
                Box::new(BufReader::with_capacity(128 * 1024, file))
            }
        };
        let (to, chunks) = mpsc::channel(READ_AHEAD);
        let most = self.typed.chunk as usize;
        let check = submit::payload_check(self.typed.kind()?);
        std::thread::Builder::new()
            .name("lines".into())
            .spawn(move || read_all(NdjsonReader::new(input).checked_by(check), from, most, &to))?;
        Ok(chunks)
    }
}

fn read_all(mut lines: NdjsonReader<impl BufRead>, from: u64, most: usize, to: &mpsc::Sender<PayloadChunk>) {
    let broken = |end| PayloadChunk { lines: from, end: Some(end), ..PayloadChunk::default() };
    match lines.skip(from) {
        Ok(there) if there < from => {
            let problem = format!("is missing: {from} lines were sent before, this input has {there}");
            _ = to.blocking_send(broken(InputEnd::Bad { line: there + 1, problem }));
            return;
        }
        Ok(_) => {}
        Err(error) => {
            _ = to.blocking_send(broken(InputEnd::Broken(error)));
            return;
        }
    }
    loop {
        let chunk = lines.chunk(most);
        let last = chunk.end.is_some();
        // The receiver is gone if the command was interrupted.
        if to.blocking_send(chunk).is_err() || last {
            return;
        }
    }
}

fn cursor(batch: &Batch) -> anyhow::Result<u64> {
    if batch.cursor.is_empty() {
        return Ok(0);
    }
    let foreign = || anyhow!("batch `{}` was not sent by `submit --lines`", batch.id);
    batch.cursor.parse().map_err(|_| foreign()).hint("choose another name")
}

/// The result for the end of the input; `way_on` gives the hint for a bad line.
fn check_end(end: InputEnd, at: u64, resume_hint: impl Fn(u64) -> String) -> anyhow::Result<()> {
    match end {
        InputEnd::Input => Ok(()),
        InputEnd::Bad { line, problem } if line <= at => {
            Err(anyhow!("line {line} {problem}")).hint("is this the same input as before?")
        }
        InputEnd::Bad { line, problem } => Err(anyhow!("line {line} {problem}")).hint(resume_hint(line)),
        InputEnd::Broken(error) => Err(error).context("cannot read the input"),
    }
}

fn check_rejected(answers: &[SendResult], after: u64) -> anyhow::Result<()> {
    let is_in = |answer: &&SendResult| !matches!(answer, SendResult::Rejected(_));
    for answer in answers {
        if let SendResult::Rejected(rejection) = answer {
            let more = answers.iter().filter(is_in).count();
            let words = format!("a unit after line {after} was rejected, {more} after it were sent");
            return Err(rejection.clone()).context(words);
        }
    }
    Ok(())
}

fn add_error(error: longshore::SendError, batch: &Batch) -> anyhow::Error {
    use longshore::{Error, SendError};
    let cannot = format!("cannot add to batch `{}`", batch.id);
    let at = if batch.cursor.is_empty() { "0" } else { &batch.cursor };
    let resume_hint = match &error {
        SendError::CursorMoved(_) => {
            "is another `submit` filling the same batch? Let it finish, or choose another name".to_owned()
        }
        SendError::Store(Error::DiskFull { .. }) => {
            format!("free some space and run the same command again: it resumes after line {at}")
        }
        SendError::Store(error) if error.is_retryable() => {
            format!("run the same command again later: it resumes after line {at}")
        }
        SendError::Rejected(rejection) if rejection.rejects_chunk() => {
            format!("run the same command again when there is room: it resumes after line {at}")
        }
        _ => return anyhow::Error::from(error).context(cannot),
    };
    hinted(anyhow::Error::from(error).context(cannot), resume_hint)
}

fn result_text(answer: &LinesResult<'_>) -> String {
    let LinesResult { batch, sent, new } = answer;
    if sent == new {
        return format!("batch `{batch}`: {sent} units sent");
    }
    format!("batch `{batch}`: {sent} units sent, {new} of them now")
}
