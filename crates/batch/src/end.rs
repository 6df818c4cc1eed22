//! The end of a batch: does what its definition says, once per generation.
//!
//! SQL commits with the callback's own end where the rows are in the store's database: exactly
//! once. Everything else is at least once; `batch` and `generation` recognise a repeat. Commands
//! and HTTP are done by whoever runs the worker, through [`Act`].

use std::sync::Arc;

use async_trait::async_trait;
use longshore::batch::Batch;
use longshore::{
    BatchId, Clock, Context, Counts, Effect, Handler, HandlerResult, Reply, Scope, SystemClock,
    Timestamp, Verdict,
};
use longshore_ai::Cost;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::definition::{Action, Database, Definition, Statement};
use crate::handler::{JobError, definition};
use crate::rows::{SourceError, Sources};
use crate::sql;
use crate::sql_post::effect;
use crate::value::from_json;

/// Does what is not SQL: runs commands, calls URLs.
#[async_trait]
pub trait Act: Send + Sync + 'static {
    /// Does it, with these facts.
    async fn act(&self, action: &Action, facts: &Value) -> Result<(), ActError>;
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ActError {
    /// What happened.
    pub message: String,
    /// Whether trying again may help.
    pub retryable: bool,
}

/// Announces ends: the handler of [`crate::definition::END_KIND`].
pub struct EndHandler {
    sources: Arc<Sources>,
    act: Arc<dyn Act>,
    clock: Arc<dyn Clock>,
}

/// What a callback carries; see [`longshore::batch::Callback`].
#[derive(Debug, Clone, Deserialize)]
pub struct Ended {
    /// Which batch.
    pub batch: BatchId,
    /// How it ended.
    pub status: String,
    /// Which of its ends this is.
    pub generation: u32,
    /// Its units when it ended.
    pub counts: Counts,
}

impl EndHandler {
    /// A handler that leaves commands and HTTP to `act`.
    pub fn new(sources: Arc<Sources>, act: Arc<dyn Act>) -> Self {
        Self { sources, act, clock: Arc::new(SystemClock) }
    }

    async fn announce(
        &self,
        definition: &Definition,
        action: &Action,
        facts: &Value,
    ) -> Result<Vec<Effect>, Verdict> {
        match (action, &definition.database) {
            (Action::Sql(statements), Database::Store) => bind(statements, facts).map_err(refused),
            (_, database) => {
                let performed = perform(action, facts, database, &self.sources, &*self.act).await;
                performed.map(|()| Vec::new()).map_err(refused)
            }
        }
    }
}

/// Does an action outside of any unit's end: SQL runs in the rows' database, the rest is `act`'s.
pub async fn perform(
    action: &Action,
    facts: &Value,
    database: &Database,
    sources: &Sources,
    act: &dyn Act,
) -> Result<(), ActError> {
    let Action::Sql(statements) = action else {
        return act.act(action, facts).await;
    };
    let effects = bind(statements, facts)?;
    let source = sources.resolve(database)?;
    Ok(source.apply(&effects).await?)
}

impl From<SourceError> for ActError {
    fn from(error: SourceError) -> Self {
        Self { message: error.to_string(), retryable: error.is_retryable() }
    }
}

impl Handler for EndHandler {
    type Input = Ended;
    type Output = ();

    async fn run(&self, context: Context, ended: Ended) -> HandlerResult<()> {
        let store = context.client().store();
        // Anyone may send such a unit; only its own tenant's batches are its business.
        let own = Scope::Tenant(context.unit().tenant.clone());
        let batch = store.batch(&own, &ended.batch).await.map_err(unknown)?;
        if ended.generation > batch.announced {
            return Err(Verdict::fail("no-end", "the batch has not ended in that generation"));
        }
        let definition = definition(&context, &ended.batch).await.map_err(JobError::verdict)?;
        let Some(action) = &definition.completion else {
            return Ok(Reply::new(()));
        };
        let facts = facts(&ended, &batch, self.clock.now());
        let effects = self.announce(&definition, action, &facts).await?;
        Ok(Reply::new(()).with_effects(effects))
    }
}

fn unknown(error: longshore::Error) -> Verdict {
    match error.is_retryable() {
        true => Verdict::retry("store", error),
        false => Verdict::fail("no-batch", error),
    }
}

fn refused(error: ActError) -> Verdict {
    match error.retryable {
        true => Verdict::retry("completion", error),
        false => Verdict::fail("completion", error),
    }
}

/// What is said of an end. The tally is that of the end itself; money and time are the batch's as
/// it stands now.
fn facts(ended: &Ended, batch: &Batch, now: Timestamp) -> Value {
    let Ended { batch: id, status, generation, counts } = ended;
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

/// Statements with the facts bound, the batch also as `:batch_id`.
fn bind(statements: &[Statement], facts: &Value) -> Result<Vec<Effect>, ActError> {
    statements.iter().map(|statement| bind_one(statement, facts)).collect()
}

fn bind_one(statement: &Statement, facts: &Value) -> Result<Effect, ActError> {
    let fact = |name: &str| facts.get(if name == "batch_id" { "batch" } else { name });
    let names: Vec<String> = sql::parameters(&statement.sql).iter().map(|&n| n.into()).collect();
    if let Some(unknown) = names.iter().find(|name| fact(name).is_none()) {
        let message = format!("`:{unknown}` is nothing that is known here: {}", statement.sql);
        return Err(ActError { message, retryable: false });
    }
    Ok(effect(statement, &names, |name| from_json(fact(name).unwrap_or(&Value::Null))))
}
