//! POST by a command: its operation `apply` receives a row and the reply to it, and decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longshore::Effect;
use serde_json::{Map, Value, json};

use super::error::CallFailure;
use super::prepare::{add_row_data, row_arguments};
use super::response;
use super::{APPLY, CommandError, CommandPool, Commands};
use crate::definition::{CommandPost, PostVerdict};
use crate::pre_post::{Apply, ApplyError, ApplyOutcome, PrepareError, RowReply, RowRun};
use crate::row_loader::RowLoader;

/// POST by a running command.
#[derive(Debug)]
pub struct CommandApply {
    command: Arc<CommandPool>,
    row_loader: Option<RowLoader>,
}

impl CommandApply {
    /// Starts the command unless it is running.
    pub async fn open(post: &CommandPost, commands: &Commands) -> Result<Self, CommandError> {
        let command = commands.open(&post.command, APPLY).await?;
        let row_loader =
            |sql: &String| RowLoader { sql: sql.clone(), lists: BTreeMap::new(), facts: Vec::new() };
        Ok(Self { command, row_loader: post.row_sql.as_ref().map(row_loader) })
    }

    async fn arguments(&self, row: &RowRun<'_>, reply: &RowReply) -> Result<Value, ApplyError> {
        let mut arguments = row_arguments(row);
        add_reply(&mut arguments, reply);
        match &self.row_loader {
            None => {}
            Some(row_loader) => match row_loader.read(row).await {
                Ok(loaded) => add_row_data(&mut arguments, &loaded),
                // A deleted row still has a reply to apply.
                Err(PrepareError::Failed { retryable: false, message, .. }) => {
                    tracing::debug!(%message, "POST runs without its row");
                    arguments.insert("row".to_owned(), Value::Null);
                }
                // The rows' database is away.
                Err(PrepareError::Snooze { message, after }) => {
                    return Err(ApplyError::Snooze { message, after });
                }
                Err(PrepareError::LateRead(message)) => {
                    return Err(ApplyError::Snooze { message, after: row.source.retry_delay() });
                }
                Err(error) => return Err(ApplyError::Failed(error.to_string())),
            },
        }
        Ok(Value::Object(arguments))
    }
}

#[async_trait]
impl Apply for CommandApply {
    async fn apply(&self, row: &RowRun<'_>, reply: &RowReply) -> Result<ApplyOutcome, ApplyError> {
        let arguments = self.arguments(row, reply).await?;
        let answer = match self.command.call(APPLY, &arguments).await {
            Ok(answer) => answer,
            // The command reports that the row cannot succeed.
            Err(CallFailure::Fail(reason)) => return Ok(failed(reason)),
            Err(failure) => return Err(failure.into()),
        };
        let invalid_response = |why: String| ApplyError::Failed(self.command.invalid_response(why));
        let response = response::parse_apply(answer).map_err(invalid_response)?;
        let effects: Result<Vec<Effect>, String> =
            response.effects.iter().map(|effect| effect.bind(row, reply)).collect();
        Ok(ApplyOutcome {
            verdict: response.verdict,
            reason: response.reason,
            after: response.after,
            effects: effects.map_err(invalid_response)?,
        })
    }
}

fn failed(reason: String) -> ApplyOutcome {
    let (reason, effects) = (Some(reason), Vec::new());
    ApplyOutcome { verdict: PostVerdict::Fail, reason, after: None, effects }
}

/// Adds the answer, or the error.
fn add_reply(arguments: &mut Map<String, Value>, reply: &RowReply) {
    let mut tell = |name: &str, value: Value| _ = arguments.insert(name.to_owned(), value);
    tell("status", json!(reply.status()));
    let error = reply.error.as_ref();
    tell("error_code", json!(error.map(|error| &error.code)));
    tell("error_message", json!(error.map(|error| &error.message)));
    tell("retryable", json!(error.is_some_and(|error| error.retryable)));
    tell("answer", reply.json.clone().unwrap_or(Value::Null));
    let answer = reply.answer.as_ref();
    tell("text", json!(answer.map(|answer| &answer.text)));
    tell("finish_reason", json!(answer.map(|answer| answer.finish_reason)));
    tell("model", json!(answer.map(|answer| &answer.model)));
    tell("tokens_in", json!(answer.map(|answer| answer.tokens_in)));
    tell("tokens_out", json!(answer.map(|answer| answer.tokens_out)));
    tell("latency_ms", json!(answer.map(|answer| answer.latency_ms)));
    tell("cost_usd", json!(answer.map(|_| reply.cost.dollars())));
    tell("simulated", json!(answer.map(|answer| answer.simulated)));
}
