//! A batch's definition, compiled once and used by all its rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, BoundedPool, Context, Payload, PoolName, PoolRegistry, RetryPolicy, Verdict};
use longshore_ai::{Inference, Provider, ResponseSchema};
use serde_json::Value;

use super::model_client::ModelClient;
use crate::command::{CommandApply, CommandError, CommandPrepare, CommandStep, Commands};
use crate::definition::{Ai, Database, Definition, Mail, Post, Pre, RowStep, RowStepSpec, StepAction};
use crate::mail::{MailPrepare, MailSpool};
use crate::pre_post::{Apply, Prepare};
use crate::rows::{RowSource, SourceError, Sources};
use crate::sql_post::{CompiledStatement, SqlApply};
use crate::sql_pre::SqlPrepare;
use crate::step_condition::StepCondition;
use crate::throttled_log;

/// The version of definitions that this program reads.
const DEFINITION_VERSION: u32 = 1;

/// How long a row waits if this worker cannot run it.
const OTHER_WORKER_DELAY: Duration = Duration::from_secs(10);
/// How long a row waits after its batch's definition could not be read, or the rows' database not be opened.
const STORE_DELAY: Duration = Duration::from_secs(1);

/// What the program supplies for all definitions.
pub(crate) struct Dependencies {
    pub(crate) sources: Arc<Sources>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) prepare_steps: HashMap<String, Arc<dyn Prepare>>,
    pub(crate) apply_steps: HashMap<String, Arc<dyn Apply>>,
    pub(crate) providers: HashMap<String, Arc<dyn Provider>>,
    pub(crate) inference: Option<Inference>,
    pub(crate) pools: PoolRegistry,
    pub(crate) mail_spool: Option<Arc<dyn MailSpool>>,
}

/// A definition with everything that a row's run needs.
pub(crate) struct CompiledBatch {
    pub(crate) definition: Definition,
    /// The definition as stored.
    pub(crate) payload: Payload,
    pub(crate) source: Arc<dyn RowSource>,
    /// At least one: the last is that of `[ai]` or `[mail]`.
    pub(crate) steps: Vec<CompiledRowStep>,
    pub(crate) apply: Arc<dyn Apply>,
}

/// A step of a row.
pub(crate) struct CompiledRowStep {
    /// `None` for the last step.
    pub(crate) name: Option<String>,
    pub(crate) when: Option<StepCondition>,
    /// Its own retry policy; otherwise the batch's.
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) timeout: Duration,
    /// The step in flight holds a permit of it.
    pub(crate) pool: Option<BoundedPool>,
    pub(crate) action: CompiledStep,
}

/// What a step does.
pub(crate) enum CompiledStep {
    Ai(Box<AiStep>),
    Mail(Box<MailStep>),
    Query(String),
    Sql(Vec<CompiledStatement>),
    Command(Box<CommandStep>),
}

/// PRE makes a prompt, and a model answers it.
pub(crate) struct AiStep {
    pub(crate) ai: Ai,
    pub(crate) prepare: Arc<dyn Prepare>,
    pub(crate) model_client: ModelClient,
    /// The schema as sent to providers.
    pub(crate) request_schema: Option<Arc<Value>>,
    /// The schema that parses answers.
    pub(crate) schema: Option<ResponseSchema>,
}

/// PRE makes a message, and the spool stores it.
pub(crate) struct MailStep {
    pub(crate) prepare: MailPrepare,
    pub(crate) spool: Arc<dyn MailSpool>,
}

/// Why the rows of a batch cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BatchLoadError {
    /// The unit was sent by hand.
    #[error("the unit belongs to no batch")]
    NoBatch,
    /// The batch has no rows of a database.
    #[error("batch `{0}` has no definition")]
    NoDefinition(BatchId),
    /// Another version wrote the definition.
    #[error("the definition of batch `{batch}` cannot be read: {why}")]
    Unreadable { batch: BatchId, why: String },
    /// A part of the definition does not compile.
    #[error("the definition of batch `{batch}` does not work: {why}")]
    Unusable { batch: BatchId, why: String },
    /// The code is registered in another program.
    #[error("this worker has no {step} called `{name}`")]
    UnknownCode { step: &'static str, name: String },
    /// The calls need a ledger.
    #[error("this worker has no ledger, which profile `{0}` needs")]
    NoInference(String),
    /// The messages need a spool.
    #[error("this worker has no spool for mail")]
    NoMailSpool,
    /// The calls need permits of a pool that this program does not have.
    #[error("this worker's configuration has no pool `{0}`")]
    NoPool(PoolName),
    /// The command does not start here.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The rows' database cannot be opened.
    #[error("the rows' database cannot be opened: {0}")]
    Source(#[from] SourceError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] longshore::Error),
}

impl BatchLoadError {
    /// The verdict for the unit. (`?` would make a plain retry of it.)
    pub(crate) fn verdict(self) -> Verdict {
        let code = match &self {
            BatchLoadError::NoBatch => "no-batch",
            BatchLoadError::NoDefinition(_) => "no-definition",
            BatchLoadError::Unreadable { .. } | BatchLoadError::Unusable { .. } => "bad-definition",
            // Another worker may have what this one lacks: no attempt is used.
            BatchLoadError::Command(_) => {
                // Logged elsewhere already; every row gets here.
                tracing::debug!(error = %self, "a row is left for another worker");
                return Verdict::Snooze(OTHER_WORKER_DELAY);
            }
            // Logged elsewhere already.
            BatchLoadError::Source(error) if error.is_retryable() => return Verdict::Snooze(STORE_DELAY),
            BatchLoadError::Source(_) => return Verdict::Snooze(OTHER_WORKER_DELAY),
            BatchLoadError::UnknownCode { .. }
            | BatchLoadError::NoInference(_)
            | BatchLoadError::NoPool(_)
            | BatchLoadError::NoMailSpool => {
                throttled_log::warn("rows are left for another worker", &self, &self);
                return Verdict::Snooze(OTHER_WORKER_DELAY);
            }
            BatchLoadError::Store(error) if !error.is_final() => {
                throttled_log::warn("rows wait for the store", "", error);
                return Verdict::Snooze(STORE_DELAY);
            }
            BatchLoadError::Store(_) => "store",
        };
        Verdict::fail(code, self)
    }
}

fn report_command(error: &CommandError) {
    throttled_log::warn("rows wait", error, error);
}

/// Reads a batch's definition from the store.
pub(crate) async fn definition(context: &Context, id: &BatchId) -> Result<Definition, BatchLoadError> {
    parse_definition(id, &definition_payload(context, id).await?)
}

/// A batch's definition as stored.
pub(super) async fn definition_payload(context: &Context, id: &BatchId) -> Result<Payload, BatchLoadError> {
    let client = context.client();
    let found = client.store().definition(client.scope(), id).await?;
    found.ok_or_else(|| BatchLoadError::NoDefinition(id.clone()))
}

pub(super) fn parse_definition(id: &BatchId, payload: &Payload) -> Result<Definition, BatchLoadError> {
    let unreadable = |why: String| BatchLoadError::Unreadable { batch: id.clone(), why };
    let definition: Definition = payload.parse().map_err(|error| unreadable(error.to_string()))?;
    match definition.version {
        DEFINITION_VERSION => Ok(definition),
        other => Err(unreadable(format!(
            "it has version {other}, this program reads version {DEFINITION_VERSION}"
        ))),
    }
}

impl Dependencies {
    pub(crate) fn new(sources: Arc<Sources>) -> Self {
        let (prepare_steps, apply_steps, providers) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self {
            sources,
            commands: Arc::default(),
            prepare_steps,
            apply_steps,
            providers,
            inference: None,
            pools: PoolRegistry::default(),
            mail_spool: None,
        }
    }

    /// Compiles a definition, and starts its commands.
    pub(crate) async fn compile(
        &self,
        id: &BatchId,
        definition: Definition,
        payload: Payload,
    ) -> Result<CompiledBatch, BatchLoadError> {
        let unusable = |why: String| BatchLoadError::Unusable { batch: id.clone(), why };
        let source = self.sources.resolve_for(&definition).await?;
        let mut steps = Vec::with_capacity(definition.steps.len() + 1);
        for step in &definition.steps {
            steps.push(self.row_step(&definition, step, unusable).await?);
        }
        let action = match &definition.step {
            RowStep::Ai(ai) => {
                let prepare = self.prepare(&definition.pre, unusable).await?;
                CompiledStep::Ai(Box::new(self.ai_step(&definition, ai, prepare, unusable)?))
            }
            RowStep::Mail(mail) => {
                CompiledStep::Mail(Box::new(self.mail_step(&definition, mail, unusable)?))
            }
        };
        // The names of earlier steps' answers were checked before the batch began.
        let fields = action.reply_fields().filter(|_| steps.is_empty());
        steps.push(CompiledRowStep {
            name: None,
            when: None,
            retry: None,
            timeout: definition.timeout(),
            pool: definition.pool().map(|name| self.pool(name)).transpose()?,
            action,
        });
        Ok(CompiledBatch {
            source,
            apply: self.apply(&definition, fields.as_deref(), unusable).await?,
            steps,
            definition,
            payload,
        })
    }

    /// Compiles what POST needs, without the step before it: for rows that have ended.
    pub(crate) async fn compile_post(
        &self,
        id: &BatchId,
        definition: &Definition,
    ) -> Result<(Arc<dyn RowSource>, Arc<dyn Apply>), BatchLoadError> {
        let unusable = |why: String| BatchLoadError::Unusable { batch: id.clone(), why };
        let source = self.sources.resolve_for(definition).await?;
        // Which names POST may bind was checked before the batch began.
        Ok((source, self.apply(definition, None, unusable).await?))
    }

    /// Compiles a step before the last one.
    async fn row_step(
        &self,
        definition: &Definition,
        step: &RowStepSpec,
        unusable: impl Fn(String) -> BatchLoadError + Copy,
    ) -> Result<CompiledRowStep, BatchLoadError> {
        let unusable = |why: String| unusable(format!("step `{}`: {why}", step.name));
        let when = step.when.as_deref().map(StepCondition::compile).transpose();
        let (mut timeout, mut pool) = (definition.timeout(), None);
        let action = match &step.action {
            StepAction::Ask(prompt) => {
                let prepare = SqlPrepare::compile_step(prompt, &definition.pre).map_err(&unusable)?;
                timeout = prompt.ai.timeout;
                pool = prompt.ai.pool.as_ref().map(|name| self.pool(name)).transpose()?;
                let ask = self.ai_step(definition, &prompt.ai, Arc::new(prepare), unusable)?;
                CompiledStep::Ai(Box::new(ask))
            }
            StepAction::Query(sql) => CompiledStep::Query(sql.clone()),
            StepAction::Sql(statements) => {
                let compiled = statements.iter().map(|statement| CompiledStatement::new(statement, None));
                CompiledStep::Sql(compiled.collect::<Result<_, _>>().map_err(&unusable)?)
            }
            StepAction::Command(command) => {
                timeout = command.timeout + command.start_timeout;
                let opened = CommandStep::open(command, &definition.pre, &self.commands).await;
                CompiledStep::Command(Box::new(opened.inspect_err(report_command)?))
            }
        };
        Ok(CompiledRowStep {
            name: Some(step.name.clone()),
            when: when.map_err(|error| unusable(format!("when: {error}")))?,
            retry: step.retry.clone(),
            timeout,
            pool,
            action,
        })
    }

    fn ai_step(
        &self,
        definition: &Definition,
        ai: &Ai,
        prepare: Arc<dyn Prepare>,
        unusable: impl Fn(String) -> BatchLoadError,
    ) -> Result<AiStep, BatchLoadError> {
        let schema = ai.schema.as_ref().map(ResponseSchema::new).transpose();
        Ok(AiStep {
            schema: schema.map_err(|error| unusable(format!("ai.schema: {error}")))?,
            prepare,
            model_client: self.model_client(ai, definition.on_lost, unusable)?,
            request_schema: ai.schema.clone().map(Arc::new),
            ai: ai.clone(),
        })
    }

    fn mail_step(
        &self,
        definition: &Definition,
        mail: &Mail,
        unusable: impl Fn(String) -> BatchLoadError,
    ) -> Result<MailStep, BatchLoadError> {
        let Pre::Sql(pre) = &definition.pre else {
            return Err(unusable("a mail batch needs SQL in PRE".to_owned()));
        };
        let prepare = MailPrepare::compile(&definition.tenant, &definition.kind, pre, mail);
        let prepare = prepare.map_err(unusable)?;
        let spool = self.mail_spool.clone().ok_or(BatchLoadError::NoMailSpool)?;
        Ok(MailStep { prepare, spool })
    }

    fn pool(&self, name: &PoolName) -> Result<BoundedPool, BatchLoadError> {
        self.pools.find(name).cloned().ok_or_else(|| BatchLoadError::NoPool(name.clone()))
    }

    async fn prepare(
        &self,
        pre: &Pre,
        unusable: impl Fn(String) -> BatchLoadError,
    ) -> Result<Arc<dyn Prepare>, BatchLoadError> {
        match pre {
            Pre::Sql(pre) => Ok(Arc::new(SqlPrepare::compile(pre).map_err(unusable)?)),
            Pre::Code(name) => find_registered(&self.prepare_steps, "PRE", name),
            Pre::Command(pre) => {
                let opened = CommandPrepare::open(pre, &self.commands).await;
                Ok(Arc::new(opened.inspect_err(report_command)?))
            }
        }
    }

    async fn apply(
        &self,
        definition: &Definition,
        reply_fields: Option<&[String]>,
        unusable: impl Fn(String) -> BatchLoadError,
    ) -> Result<Arc<dyn Apply>, BatchLoadError> {
        match &definition.post {
            Post::Sql(post) => {
                let apply = SqlApply::compile(post, reply_fields).map_err(unusable)?;
                let facts = definition.mail().into_iter().flat_map(Mail::facts);
                Ok(Arc::new(apply.with_facts(facts)))
            }
            Post::Code(name) => find_registered(&self.apply_steps, "POST", name),
            Post::Command(post) => {
                let opened = CommandApply::open(post, &self.commands).await;
                Ok(Arc::new(opened.inspect_err(report_command)?))
            }
        }
    }
}

fn find_registered<T: ?Sized>(
    known: &HashMap<String, Arc<T>>,
    step: &'static str,
    name: &str,
) -> Result<Arc<T>, BatchLoadError> {
    let found = known.get(name).cloned();
    found.ok_or_else(|| BatchLoadError::UnknownCode { step, name: name.to_owned() })
}

impl CompiledStep {
    /// The fields of the step's reply that POST may bind; `None` allows any name.
    fn reply_fields(&self) -> Option<Vec<String>> {
        match self {
            Self::Ai(step) => step.schema.as_ref().and_then(ResponseSchema::properties),
            Self::Mail(_) => Some(Mail::reply_fields()),
            Self::Query(_) | Self::Sql(_) | Self::Command(_) => None,
        }
    }
}

impl CompiledBatch {
    /// Whether POST's SQL commits with the row's finish.
    pub(crate) fn rows_in_store(&self) -> bool {
        self.definition.database == Database::Store
    }
}
