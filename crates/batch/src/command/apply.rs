//! POST by a command: its operation `apply` gets a row and the reply to it, and decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longshore::Effect;
use serde_json::{Map, Value, json};

use super::prepare::{about, tell_known};
use super::said;
use super::trouble::Trouble;
use super::{APPLY, CommandError, CommandPool, Commands};
use crate::definition::{CommandPost, Verdict};
use crate::reading::Reading;
use crate::step::{Applied, Apply, ApplyError, PrepareError, Reply, RowRun};

/// POST by a command that was started.
#[derive(Debug)]
pub struct CommandApply {
    command: Arc<CommandPool>,
    reading: Option<Reading>,
}

impl CommandApply {
    /// Starts the command, unless another batch has.
    pub async fn open(post: &CommandPost, commands: &Commands) -> Result<Self, CommandError> {
        let command = commands.open(&post.command, APPLY).await?;
        let reading =
            |sql: &String| Reading { sql: sql.clone(), lists: BTreeMap::new(), facts: Vec::new() };
        Ok(Self { command, reading: post.row_sql.as_ref().map(reading) })
    }

    async fn told(&self, row: &RowRun<'_>, reply: &Reply) -> Result<Value, ApplyError> {
        let mut told = about(row);
        tell_reply(&mut told, reply);
        match &self.reading {
            None => {}
            Some(reading) => match reading.read(row).await {
                Ok(known) => tell_known(&mut told, &known),
                // A row that is gone has a reply all the same.
                Err(PrepareError::Failed { retryable: false, message, .. }) => {
                    tracing::debug!(%message, "POST does without its row");
                    told.insert("row".to_owned(), Value::Null);
                }
                Err(error) => return Err(ApplyError::Failed(error.to_string())),
            },
        }
        Ok(Value::Object(told))
    }
}

#[async_trait]
impl Apply for CommandApply {
    async fn apply(&self, row: &RowRun<'_>, reply: &Reply) -> Result<Applied, ApplyError> {
        let told = self.told(row, reply).await?;
        let answer = match self.command.call(APPLY, &told).await {
            Ok(answer) => answer,
            // It says itself that the row cannot be done.
            Err(Trouble::Hopeless(reason)) => return Ok(given_up(reason)),
            Err(trouble) => return Err(trouble.into()),
        };
        let nonsense = |why: String| ApplyError::Failed(self.command.nonsense(why));
        let said = said::applied(answer).map_err(nonsense)?;
        let effects: Result<Vec<Effect>, String> =
            said.effects.iter().map(|wanted| wanted.bind(row, reply)).collect();
        Ok(Applied {
            verdict: said.verdict,
            reason: said.reason,
            after: said.after,
            effects: effects.map_err(nonsense)?,
        })
    }
}

fn given_up(reason: String) -> Applied {
    let (reason, effects) = (Some(reason), Vec::new());
    Applied { verdict: Verdict::Fail, reason, after: None, effects }
}

/// What was answered, or why nothing was.
fn tell_reply(told: &mut Map<String, Value>, reply: &Reply) {
    let mut tell = |name: &str, value: Value| _ = told.insert(name.to_owned(), value);
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
