//! The steps of a row, one after the other. Each leaves its answer in the checkpoint before the next
//! begins: an answer of a model in the checkpoint that saves it, the others with a checkpoint of their
//! own, in which the statements of SQL and commands commit if the rows are in the store's database.
//!
//! A step with an error ends the loop: POST receives it, and a RETRY begins with that step again.

use longshore::batch::Sums;
use longshore::{Effect, Failure, SqlValue, Verdict};
use longshore_ai::Cost;
use serde_json::{Map, Value};
use tokio::time::timeout_at;

use super::compiled_batch::{CompiledRowStep, CompiledStep};
use super::reply::{PRE_ERROR, error_reply, final_error, timeout_error};
use super::run::{RowExecution, run_deadline};
use super::verdict;
use crate::checkpoint::StepRecord;
use crate::definition::Trial;
use crate::jitter::with_jitter;
use crate::pre_post::{PrepareError, ReplyError, RowReply, SKIPPED};
use crate::rows::SourceError;
use crate::sql_json::to_json;

/// A step cannot run: its condition or its statements have an error.
const STEP_ERROR: &str = "STEP_ERROR";

/// What a step that asks no model leaves.
type StepResult = Result<(Value, Vec<Effect>), ReplyError>;

impl RowExecution<'_> {
    /// Whether the row has steps before its last one.
    pub(super) fn has_steps(&self) -> bool {
        self.compiled.steps.len() > 1
    }

    /// Runs the steps that are left, until one has an error or the last one has its reply.
    pub(super) async fn run_to_reply(&mut self) -> Result<RowReply, Verdict> {
        loop {
            let step = self.step();
            let Some(name) = &step.name else {
                self.begin(step);
                return self.ask_or_send().await;
            };
            match step.when.as_ref().map_or(Ok(true), |when| when.is_met(&self.row.answers)) {
                Ok(true) => {}
                Ok(false) => {
                    self.leave(StepRecord::new(name, Value::Null));
                    continue;
                }
                Err(why) => return Ok(error_reply(final_error(STEP_ERROR, why))),
            }
            self.begin(step);
            if self.context.cancelled().is_cancelled() {
                return Err(verdict::interrupted());
            }
            if let Some(error) = self.obstacle() {
                return Ok(error_reply(error));
            }
            let done = match &step.action {
                CompiledStep::Ai(_) | CompiledStep::Mail(_) => {
                    let reply = self.ask_or_send().await?;
                    if reply.error.is_some() {
                        return Ok(reply);
                    }
                    self.leave(StepRecord::of(name, reply));
                    continue;
                }
                CompiledStep::Query(sql) => self.query(sql).await?,
                CompiledStep::Sql(statements) => {
                    let reply = RowReply::of_step(Value::Null);
                    let bind = statements.iter().map(|statement| statement.bind(&self.row, &reply, &[]));
                    Ok((Value::Bool(true), bind.collect()))
                }
                CompiledStep::Command(command) => self.step_result(command.run(name, &self.row).await)?,
            };
            let committed = match done {
                Ok((answer, effects)) => self.commit(StepRecord::new(name, answer), effects).await?,
                Err(error) => Err(error),
            };
            if let Err(error) = committed {
                return Ok(error_reply(error));
            }
        }
    }

    /// Prepares a step's run: its timeout, its attempts and its run key.
    fn begin(&mut self, step: &CompiledRowStep) {
        if !self.has_steps() {
            return;
        }
        let (unit, now) = (self.context.unit(), self.store_time.now());
        self.deadline = run_deadline(self.compiled, step.timeout, now);
        self.row.read_until = Some(self.deadline);
        let own = step.retry.as_ref().unwrap_or(&self.compiled.definition.retry);
        let unit_policy = verdict::policy(self.context, self.compiled);
        // An operator's retry gives the step all its attempts again: the unit's begin anew then.
        let tries = self.checkpoint.tries.min(unit.attempt.saturating_sub(1));
        self.row.is_last_attempt =
            tries + 1 >= own.max_attempts || !unit_policy.allows(unit.attempt, unit.created_at, now);
        self.row.run_key = self.checkpoint.run_key(unit.id, step.name.as_deref());
    }

    /// Leaves a step behind. The next checkpoint saves it.
    fn leave(&mut self, record: StepRecord) {
        self.row.answers.insert(record.name.clone(), record.answer.clone());
        self.checkpoint = self.checkpoint.completed(record, self.unanswered);
        self.unanswered = 0;
        self.position += 1;
    }

    /// Commits a step: its statements with its checkpoint, or before it if the rows are elsewhere.
    async fn commit(
        &mut self,
        record: StepRecord,
        mut effects: Vec<Effect>,
    ) -> Result<Result<(), ReplyError>, Verdict> {
        if self.compiled.definition.trial == Some(Trial::AskOnly) {
            effects.clear();
        }
        if !self.compiled.rows_in_store() && !effects.is_empty() {
            let own = std::mem::take(&mut effects);
            match self.compiled.source.apply(&own).await {
                Ok(()) => {}
                Err(error) if error.puts_rows_off() => return Err(self.wait_for_source()),
                Err(error) => {
                    let effect = final_error("EFFECT", error.to_string());
                    return Ok(Err(ReplyError { retryable: true, ..effect }));
                }
            }
        }
        let next = self.checkpoint.completed(record.clone(), self.unanswered);
        if let Err(failure) = self.save_with(next, Sums::new(), effects).await? {
            return Ok(Err(effect_error(&failure)));
        }
        self.unanswered = 0;
        self.row.answers.insert(record.name, record.answer);
        self.position += 1;
        Ok(Ok(()))
    }

    /// Runs the step again later, without an attempt: the rows' database failed. No question of the step is open.
    pub(super) fn wait_for_source(&self) -> Verdict {
        Verdict::Snooze(with_jitter(self.row.source.retry_delay(), self.row.unit))
    }

    /// The rows of a query, as a list of objects. A verdict if the row waits for its database.
    async fn query(&self, sql: &str) -> Result<StepResult, Verdict> {
        let reply = RowReply::of_step(Value::Null);
        let names = crate::sql::parameters(sql).into_iter();
        let params: Vec<(String, SqlValue)> =
            names.map(|name| (name.to_owned(), crate::sql_post::value(name, &self.row, &reply))).collect();
        let late = |why: &str| self.on_late_read(why).map(Err);
        let rows = match timeout_at(self.deadline, self.compiled.source.fetch(sql, &params)).await {
            Ok(Ok(rows)) => rows,
            Err(_) => return late("the rows' database did not answer in time"),
            Ok(Err(error @ SourceError::TimedOut(_))) => return late(&error.to_string()),
            Ok(Err(error)) if error.puts_rows_off() => return Err(self.wait_for_source()),
            Ok(Err(error)) => return Ok(Err(final_error(STEP_ERROR, error.to_string()))),
        };
        let object = |row: crate::rows::Row| -> Value {
            row.columns
                .iter()
                .map(|(name, value)| (name.clone(), to_json(value)))
                .collect::<Map<_, _>>()
                .into()
        };
        Ok(Ok((rows.into_iter().map(object).collect(), Vec::new())))
    }

    /// The result of a command. A verdict if the step cannot run here now.
    fn step_result(&self, result: Result<(Value, Vec<Effect>), PrepareError>) -> Result<StepResult, Verdict> {
        match result {
            Ok(done) => Ok(Ok(done)),
            Err(PrepareError::Snooze { after, .. }) => Err(Verdict::Snooze(after)),
            Err(PrepareError::LateRead(why)) => self.on_late_read(&why).map(Err),
            Err(PrepareError::Skip(reason)) => Ok(Err(final_error(SKIPPED, reason))),
            Err(PrepareError::Failed { message, retryable, after }) => {
                Ok(Err(ReplyError { retryable, retry_after: after, ..final_error(STEP_ERROR, message) }))
            }
        }
    }

    /// Why no step may begin: the batch's deadline has passed, or the row had an error before its run.
    fn obstacle(&self) -> Option<ReplyError> {
        let problem = self.problem.as_ref().map(|problem| final_error(PRE_ERROR, problem));
        problem.or_else(|| self.past_deadline.then(|| timeout_error("the batch's deadline has passed")))
    }
}

impl StepRecord {
    /// A step that asked no model.
    fn new(name: &str, answer: Value) -> Self {
        Self { name: name.to_owned(), answer, tokens_in: 0, tokens_out: 0, cost: Cost::default() }
    }

    /// A step with this reply: its JSON, or the text.
    fn of(name: &str, reply: RowReply) -> Self {
        let RowReply { answer, json, cost, .. } = reply;
        let (tokens_in, tokens_out) =
            answer.as_ref().map_or((0, 0), |answer| (answer.tokens_in, answer.tokens_out));
        let text = || answer.map_or(Value::Null, |answer| Value::String(answer.text));
        let answer = json.unwrap_or_else(text);
        Self { tokens_in, tokens_out, cost, ..Self::new(name, answer) }
    }
}

/// The error of a statement that the store rejected with the step's checkpoint.
fn effect_error(failure: &Failure) -> ReplyError {
    let code = failure.code.to_ascii_uppercase().replace('-', "_");
    ReplyError { retryable: true, ..final_error(&code, failure.message.clone()) }
}
