//! Runs at the end of a batch, once per generation: reports rows that ended outside of POST to POST
//! (`ended_rows`), then runs the completion action.
//!
//! SQL commits with the unit's own finish if the rows are in the store's database: exactly once.
//! Every other action runs at least once; `batch` and `generation` identify a repeat. The program
//! that runs the worker supplies commands and HTTP through [`ActionRunner`].

mod ended_rows;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::batch::Batch;
use longshore::{
    BatchId, Clock, Context, Counts, Effect, Handler, HandlerReply, HandlerResult, Scope, SystemClock,
    Timestamp, Verdict,
};
use longshore_ai::Cost;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::command::Commands;
use crate::definition::{Action, Database, Definition, SqlStatement};
use crate::handler::{BatchLoadError, Dependencies, definition};
use crate::pre_post::Apply;
use crate::report::gather_failures;
use crate::rows::{SourceError, Sources};
use crate::sql;
use crate::sql_json::from_json;
use crate::sql_post::effect;

use self::ended_rows::{EndedRows, Progress};

/// How long a completion waits for an unavailable database.
const SOURCE_DELAY: Duration = Duration::from_secs(2);

/// Runs actions other than SQL: commands and HTTP calls.
#[async_trait]
pub trait ActionRunner: Send + Sync + 'static {
    /// Runs the action with these facts as its input.
    async fn run(&self, action: &Action, facts: &Value) -> Result<(), ActionError>;
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ActionError {
    /// The error message.
    pub message: String,
    /// Whether a retry may help.
    pub retryable: bool,
}

/// Runs completion actions: the handler of [`crate::definition::COMPLETION_KIND`].
pub struct CompletionHandler {
    dependencies: Dependencies,
    act: Arc<dyn ActionRunner>,
    clock: Arc<dyn Clock>,
    pages: Option<String>,
}

/// Failures that are grouped for an action, the newest first.
const MAX_GROUPED_FAILURES: u64 = 10_000;

/// The payload of a batch's callback; see [`longshore::batch::Callback`].
#[derive(Debug, Clone, Deserialize)]
pub struct CompletionInput {
    /// The batch.
    pub batch: BatchId,
    /// Its final status.
    pub status: String,
    /// The generation that ended.
    pub generation: u32,
    /// Its counts when it ended.
    pub counts: Counts,
}

/// The stored result of a completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionResult {
    /// Rows that ended outside of POST, and were reported to POST.
    pub reported: u64,
    /// Rows of which POST or its SQL rejected the report.
    pub unreported: u64,
    /// Why the first of them was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CompletionHandler {
    /// A handler that runs commands and HTTP calls through `act`.
    pub fn new(sources: Arc<Sources>, act: Arc<dyn ActionRunner>) -> Self {
        let dependencies = Dependencies::new(sources);
        Self { dependencies, act, clock: Arc::new(SystemClock), pages: None }
    }

    /// Sets the URL of the dashboard, for links to the batch's page.
    #[must_use]
    pub fn with_pages(self, url: Option<String>) -> Self {
        Self { pages: url, ..self }
    }

    /// Sets the registry that starts the commands of POST; handlers given the same registry share
    /// them.
    #[must_use]
    pub fn commands(mut self, commands: Arc<Commands>) -> Self {
        self.dependencies.commands = commands;
        self
    }

    /// Registers the code that [`crate::definition::Post::Code`] with this name runs.
    #[must_use]
    pub fn apply(mut self, name: impl Into<String>, apply: impl Apply) -> Self {
        self.dependencies.apply_steps.insert(name.into(), Arc::new(apply));
        self
    }

    /// Reports the rows that ended outside of POST.
    async fn report_ended_rows(
        &self,
        context: &Context,
        definition: &Definition,
        ended: &CompletionInput,
    ) -> Result<Progress, Verdict> {
        if !ended_rows::has_statements(&definition.post) {
            return Ok(Progress::default());
        }
        let post = self.dependencies.compile_post(&ended.batch, definition).await;
        let (source, apply) = post.map_err(BatchLoadError::verdict)?;
        let rows = EndedRows {
            context,
            batch: &ended.batch,
            generation: ended.generation,
            in_store: definition.database == Database::Store,
            source,
            apply,
        };
        rows.report().await
    }

    async fn run_completion(
        &self,
        definition: &Definition,
        action: &Action,
        facts: &Value,
    ) -> Result<Vec<Effect>, Verdict> {
        match (action, &definition.database) {
            (Action::Sql(statements), Database::Store) => bind(statements, facts).map_err(action_error),
            (Action::Sql(statements), Database::Url(_)) => {
                let effects = bind(statements, facts).map_err(action_error)?;
                let done = async {
                    let source = self.dependencies.sources.resolve_for(definition).await?;
                    source.apply(&effects).await
                };
                done.await.map(|()| Vec::new()).map_err(source_error)
            }
            _ => {
                let sources = &self.dependencies.sources;
                let performed = run_action(action, facts, definition, sources, &*self.act).await;
                performed.map(|()| Vec::new()).map_err(action_error)
            }
        }
    }
}

/// Runs an action outside of any unit's finish: SQL in the rows' database, everything else through
/// `act`.
pub async fn run_action(
    action: &Action,
    facts: &Value,
    definition: &Definition,
    sources: &Sources,
    act: &dyn ActionRunner,
) -> Result<(), ActionError> {
    let Action::Sql(statements) = action else {
        return act.run(action, facts).await;
    };
    let effects = bind(statements, facts)?;
    let source = sources.resolve_for(definition).await?;
    Ok(source.apply(&effects).await?)
}

impl From<SourceError> for ActionError {
    fn from(error: SourceError) -> Self {
        Self { message: error.to_string(), retryable: error.is_retryable() }
    }
}

impl Handler for CompletionHandler {
    type Input = CompletionInput;
    type Output = CompletionResult;

    async fn run(&self, context: Context, ended: CompletionInput) -> HandlerResult<CompletionResult> {
        let store = context.client().store();
        // Any client can send such a unit; restrict it to batches of its own tenant.
        let own = Scope::Tenant(context.unit().tenant.clone());
        let batch = store.batch(&own, &ended.batch).await.map_err(batch_error)?;
        if ended.generation > batch.announced {
            return Err(Verdict::fail("no-end", "the batch has not ended in that generation"));
        }
        let definition = definition(&context, &ended.batch).await.map_err(BatchLoadError::verdict)?;
        let progress = self.report_ended_rows(&context, &definition, &ended).await?;
        let Some(action) = &definition.completion else {
            return Ok(HandlerReply::new(progress.result));
        };
        let mut facts = facts(&ended, &batch, self.clock.now());
        if !matches!(action, Action::Sql(_)) {
            let failures = gather_failures(&**store, &own, &batch.id, Some(MAX_GROUPED_FAILURES)).await;
            facts["failures"] = json!(failures.map_err(batch_error)?);
            facts["link"] = json!(self.pages.as_ref().map(|url| format!("{url}/batches/{}", batch.id)));
        }
        let effects = self.run_completion(&definition, action, &facts).await?;
        Ok(HandlerReply::new(progress.result).with_effects(effects))
    }
}

/// The action waits while the store is unavailable.
fn batch_error(error: longshore::Error) -> Verdict {
    match error.is_retryable() {
        true => Verdict::Snooze(SOURCE_DELAY),
        false => Verdict::fail("no-batch", error),
    }
}

/// The action waits while the rows' database is unavailable, or is another than the batch's.
fn source_error(error: SourceError) -> Verdict {
    match error {
        error if error.puts_rows_off() => Verdict::Snooze(SOURCE_DELAY),
        error => action_error(error.into()),
    }
}

fn action_error(error: ActionError) -> Verdict {
    match error.retryable {
        true => Verdict::retry("completion", error),
        false => Verdict::fail("completion", error),
    }
}

/// The facts about an end. The counts are those at the end; cost and duration are the batch's as it
/// is now.
fn facts(ended: &CompletionInput, batch: &Batch, now: Timestamp) -> Value {
    let CompletionInput { batch: id, status, generation, counts } = ended;
    let sum = |name: &str| batch.sums.get(name).copied().unwrap_or_default();
    let began = batch.started_at.unwrap_or(batch.initiated_at);
    let seconds = batch.completed_at.unwrap_or(now).since(began).as_secs_f64();
    json!({
        "batch": id,
        "type": batch.kind,
        "tenant": batch.tenant,
        "status": status,
        "generation": generation,
        "total": counts.total(),
        "done": counts.done,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "reason": batch.reason,
        "seconds": seconds,
        "cost_usd": Cost(sum("cost_picos")).dollars(),
        "simulated": sum("simulated") > 0,
    })
}

/// The statements with the facts bound; the batch is also `:batch_id`.
fn bind(statements: &[SqlStatement], facts: &Value) -> Result<Vec<Effect>, ActionError> {
    statements.iter().map(|statement| bind_statement(statement, facts)).collect()
}

fn bind_statement(statement: &SqlStatement, facts: &Value) -> Result<Effect, ActionError> {
    let fact = |name: &str| facts.get(if name == "batch_id" { "batch" } else { name });
    let names: Vec<String> = sql::parameters(&statement.sql).iter().map(|&n| n.into()).collect();
    if let Some(unknown) = names.iter().find(|name| fact(name).is_none()) {
        let message = format!("unknown parameter `:{unknown}`: {}", statement.sql);
        return Err(ActionError { message, retryable: false });
    }
    Ok(effect(statement, &names, |name| from_json(fact(name).unwrap_or(&Value::Null))))
}
