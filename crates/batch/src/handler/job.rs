//! A batch's definition, made ready to run: compiled once, used by all its rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, BoundedPool, Context, PoolBook, PoolName, Verdict};
use longshore_ai::{Desk, Provider, ResponseSchema};
use serde_json::Value;

use super::asker::Asker;
use crate::command::{CommandApply, CommandError, CommandPrepare, Commands};
use crate::definition::{Database, Definition, Mail, Post, Pre};
use crate::mail::{MailPrepare, Office};
use crate::rows::{RowSource, SourceError, Sources};
use crate::sql_post::SqlApply;
use crate::sql_pre::SqlPrepare;
use crate::step::{Apply, Prepare};

/// The form of definitions that this program knows.
const VERSION: u32 = 1;

/// How long a row waits that this worker cannot work on.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// What a program brings beside what definitions say.
pub(crate) struct Outfit {
    pub(crate) sources: Arc<Sources>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) prepares: HashMap<String, Arc<dyn Prepare>>,
    pub(crate) applies: HashMap<String, Arc<dyn Apply>>,
    pub(crate) providers: HashMap<String, Arc<dyn Provider>>,
    pub(crate) desk: Option<Desk>,
    pub(crate) pools: PoolBook,
    pub(crate) office: Option<Arc<dyn Office>>,
}

/// Everything a row's run needs.
pub(crate) struct Job {
    pub(crate) definition: Definition,
    pub(crate) source: Arc<dyn RowSource>,
    pub(crate) prepare: Arc<dyn Prepare>,
    pub(crate) asker: Asker,
    /// Each question holds a permit of it.
    pub(crate) pool: Option<BoundedPool>,
    /// The schema as providers want it.
    pub(crate) wanted: Option<Arc<Value>>,
    /// The schema as answers are read by it.
    pub(crate) schema: Option<ResponseSchema>,
    pub(crate) apply: Arc<dyn Apply>,
}

/// Why a row's batch cannot be worked on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum JobError {
    /// Somebody sent the unit by hand.
    #[error("the unit belongs to no batch")]
    NoBatch,
    /// The batch is none of ours.
    #[error("batch `{0}` has no definition")]
    NoDefinition(BatchId),
    /// It was written by another version.
    #[error("the definition of batch `{batch}` cannot be read: {why}")]
    Unreadable { batch: BatchId, why: String },
    /// A part of it does not work.
    #[error("the definition of batch `{batch}` does not work: {why}")]
    Unusable { batch: BatchId, why: String },
    /// Its code is in another program.
    #[error("this worker has no {step} called `{name}`")]
    UnknownCode { step: &'static str, name: String },
    /// Its questions are asked where there is a ledger.
    #[error("this worker has no ledger to ask by profile `{0}`")]
    NoDesk(String),
    /// Its rows are written to where there is a spool.
    #[error("this worker has no spool for mail")]
    NoOffice,
    /// Its questions need permits that this program knows nothing of.
    #[error("this worker's configuration has no pool `{0}`")]
    NoPool(PoolName),
    /// Its command does not work here.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Its database cannot be opened.
    #[error("the rows' database cannot be opened: {0}")]
    Source(#[from] SourceError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] longshore::Error),
}

impl JobError {
    /// What becomes of the unit. (`?` would make a plain retry of it.)
    pub(crate) fn verdict(self) -> Verdict {
        let (code, may_pass) = match &self {
            JobError::NoBatch => ("no-batch", false),
            JobError::NoDefinition(_) => ("no-definition", false),
            JobError::Unreadable { .. } | JobError::Unusable { .. } => ("bad-definition", false),
            // This worker lacks something that another may have: no attempt is used up.
            JobError::Command(_) => {
                // It was said already; every row comes by here.
                tracing::debug!(error = %self, "a row is left for another worker");
                return Verdict::Snooze(ELSEWHERE);
            }
            JobError::UnknownCode { .. }
            | JobError::NoDesk(_)
            | JobError::NoPool(_)
            | JobError::NoOffice
            | JobError::Source(_) => {
                tracing::warn!(error = %self, "a row is left for another worker");
                return Verdict::Snooze(ELSEWHERE);
            }
            JobError::Store(error) => ("store", error.is_retryable()),
        };
        if may_pass { Verdict::retry(code, self) } else { Verdict::fail(code, self) }
    }
}

/// Reads a batch's definition from the store.
pub(crate) async fn definition(context: &Context, id: &BatchId) -> Result<Definition, JobError> {
    let client = context.client();
    let found = client.store().definition(client.scope(), id).await?;
    let payload = found.ok_or_else(|| JobError::NoDefinition(id.clone()))?;
    let unreadable = |why: String| JobError::Unreadable { batch: id.clone(), why };
    let definition: Definition = payload.parse().map_err(|error| unreadable(error.to_string()))?;
    match definition.version {
        VERSION => Ok(definition),
        other => Err(unreadable(format!("it is of version {other}, this program knows {VERSION}"))),
    }
}

impl Outfit {
    pub(crate) fn new(sources: Arc<Sources>) -> Self {
        let (prepares, applies, providers) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self {
            sources,
            commands: Arc::default(),
            prepares,
            applies,
            providers,
            desk: None,
            pools: PoolBook::default(),
            office: None,
        }
    }

    /// Compiles a definition, and starts its commands.
    pub(crate) async fn compile(&self, id: &BatchId, what: Definition) -> Result<Job, JobError> {
        let unusable = |why: String| JobError::Unusable { batch: id.clone(), why };
        let schema = what.ai.schema.as_ref().map(ResponseSchema::new).transpose();
        let schema = schema.map_err(|error| unusable(format!("ai.schema: {error}")))?;
        Ok(Job {
            source: self.sources.resolve(&what.database)?,
            prepare: self.prepare(&what, unusable).await?,
            asker: self.asker(&what, unusable)?,
            pool: what.ai.pool.as_ref().map(|name| self.pool(name)).transpose()?,
            apply: self.apply(&what, schema.as_ref(), unusable).await?,
            wanted: what.ai.schema.clone().map(Arc::new),
            schema,
            definition: what,
        })
    }

    fn pool(&self, name: &PoolName) -> Result<BoundedPool, JobError> {
        self.pools.find(name).cloned().ok_or_else(|| JobError::NoPool(name.clone()))
    }

    async fn prepare(
        &self,
        what: &Definition,
        unusable: impl Fn(String) -> JobError,
    ) -> Result<Arc<dyn Prepare>, JobError> {
        if let (Some(mail), Pre::Sql(pre)) = (&what.mail, &what.pre) {
            let prepare = MailPrepare::compile(&what.tenant, &what.kind, pre, mail);
            return Ok(Arc::new(prepare.map_err(unusable)?));
        }
        match &what.pre {
            Pre::Sql(pre) => Ok(Arc::new(SqlPrepare::compile(pre).map_err(unusable)?)),
            Pre::Code(name) => named(&self.prepares, "PRE", name),
            Pre::Command(pre) => {
                let opened = CommandPrepare::open(pre, &self.commands).await;
                Ok(Arc::new(opened.inspect_err(|error| self.commands.warn(error))?))
            }
        }
    }

    async fn apply(
        &self,
        what: &Definition,
        schema: Option<&ResponseSchema>,
        unusable: impl Fn(String) -> JobError,
    ) -> Result<Arc<dyn Apply>, JobError> {
        match &what.post {
            Post::Sql(post) => {
                let apply = SqlApply::compile(post, schema).map_err(unusable)?;
                let facts = what.mail.iter().flat_map(Mail::facts);
                Ok(Arc::new(apply.knowing(facts)))
            }
            Post::Code(name) => named(&self.applies, "POST", name),
            Post::Command(post) => {
                let opened = CommandApply::open(post, &self.commands).await;
                Ok(Arc::new(opened.inspect_err(|error| self.commands.warn(error))?))
            }
        }
    }
}

fn named<T: ?Sized>(
    known: &HashMap<String, Arc<T>>,
    step: &'static str,
    name: &str,
) -> Result<Arc<T>, JobError> {
    let found = known.get(name).cloned();
    found.ok_or_else(|| JobError::UnknownCode { step, name: name.to_owned() })
}

impl Job {
    /// Whether POST's SQL commits with the row's end.
    pub(crate) fn shares_the_store(&self) -> bool {
        self.definition.database == Database::Store
    }
}
