//! Runs one row: prepare, ask, save the answer, apply.
//!
//! [`RowHandler`] serves every batch: it reads a unit's definition from the store and compiles it
//! once. `run` and `ask` have the run itself; `verdict` maps POST's verdict to the unit's outcome.

mod ask;
mod budget;
mod compiled_batch;
mod compiled_batch_cache;
mod deferred;
mod mail_step;
mod model_client;
mod reply;
mod run;
mod steps;
mod verdict;
mod worker_ids;

use std::sync::Arc;

use longshore::{Clock, Context, Handler, HandlerResult, PoolRegistry, SystemClock};
use longshore_ai::{AdaptiveConcurrency, Gauge, Inference, Provider};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::compiled_batch_cache::BatchCache;
use self::run::RowExecution;
use self::worker_ids::WorkerIdPool;
use crate::answer_samples::AnswerSamples;
use crate::command::Commands;
use crate::definition::PostVerdict;
use crate::mail::MailSpool;
use crate::pre_post::{Apply, Prepare};
use crate::rows::Sources;
use crate::sql_json::from_json;

pub(crate) use self::compiled_batch::{BatchLoadError, Dependencies, definition};

/// Runs rows: the handler of [`crate::definition::ROW_KIND`].
///
/// No answer is paid for twice: the run saves it in the unit's checkpoint before POST sees it, and
/// a run that finds one there goes straight to POST. If the rows are in the store's own database,
/// POST's SQL commits with the row's finish, exactly once. In another database it runs before the
/// finish, at least once, and may use `:unit_id` and `:attempt` to recognise a repeat.
pub struct RowHandler {
    batches: BatchCache,
    worker_ids: Arc<WorkerIdPool>,
    gauge: Arc<Gauge>,
    ask_limit: Option<Semaphore>,
    clock: Arc<dyn Clock>,
    samples: Option<Arc<AnswerSamples>>,
    label: String,
}

/// Builds a [`RowHandler`].
pub struct RowHandlerBuilder {
    dependencies: Dependencies,
    max_in_flight: Option<u32>,
    clock: Arc<dyn Clock>,
    samples: Option<Arc<AnswerSamples>>,
    label: String,
}

/// The payload of a row's unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowInput {
    /// The row's key: a number or text.
    pub key: Value,
    /// An error found before the run; the row can only fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The stored result of a row that is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// POST's verdict.
    pub verdict: PostVerdict,
    /// The model that answered; `None` if POST returned SUCCESS for an error.
    pub model: Option<String>,
    /// Input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// The cost in US dollars.
    pub cost_usd: f64,
    /// The latency of the answer.
    pub latency_ms: u64,
    /// Whether a simulated provider made the answer.
    pub simulated: bool,
    /// The worker that ran the row when it ended.
    pub worker: String,
    /// The answer, if the batch keeps answers; a long one is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The revision of the definition that the row ended with.
    #[serde(default = "first_revision")]
    pub revision: u32,
}

fn first_revision() -> u32 {
    1
}

/// The most bytes of a kept answer.
pub const MAX_KEPT_ANSWER: usize = 16 * 1024;

impl RowHandler {
    /// Starts building a handler. `sources` opens the databases that definitions name.
    pub fn builder(sources: Arc<Sources>) -> RowHandlerBuilder {
        RowHandlerBuilder {
            dependencies: Dependencies::new(sources),
            max_in_flight: None,
            clock: Arc::new(SystemClock),
            samples: None,
            label: format!("worker-{}", std::process::id()),
        }
    }

    /// The controller that adapts the number of concurrent rows to what the providers can take.
    pub fn adaptive_concurrency(&self) -> AdaptiveConcurrency {
        AdaptiveConcurrency::new(Arc::clone(&self.gauge))
    }
}

#[expect(clippy::return_self_not_must_use, reason = "a builder without build() does nothing")]
impl RowHandlerBuilder {
    /// Sets the prefix of `:worker_id`; a number follows. Default `worker-<pid>`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Registers the code that [`crate::definition::Pre::Code`] with this name runs.
    pub fn prepare(mut self, name: impl Into<String>, prepare: impl Prepare) -> Self {
        self.dependencies.prepare_steps.insert(name.into(), Arc::new(prepare));
        self
    }

    /// Registers the code that [`crate::definition::Post::Code`] with this name runs.
    pub fn apply(mut self, name: impl Into<String>, apply: impl Apply) -> Self {
        self.dependencies.apply_steps.insert(name.into(), Arc::new(apply));
        self
    }

    /// Sets the registry that starts the commands of definitions; handlers given the same registry
    /// share them.
    pub fn commands(mut self, commands: Arc<Commands>) -> Self {
        self.dependencies.commands = commands;
        self
    }

    /// Sets the `Inference` for rows with a profile that is in the ledger or calls a remote provider.
    /// Without it, the handler leaves their batches to another worker. The program must run
    /// [`Inference::run_journal`].
    pub fn inference(mut self, inference: Inference) -> Self {
        self.dependencies.inference = Some(inference);
        self
    }

    /// Sets the spool for messages to rows. Without it, the handler leaves mail batches to another
    /// worker.
    pub fn mail_spool(mut self, office: Arc<dyn MailSpool>) -> Self {
        self.dependencies.mail_spool = Some(office);
        self
    }

    /// Sets the bounded pools that definitions may name. The handler leaves batches that name
    /// another pool to another worker.
    pub fn pools(mut self, pools: PoolRegistry) -> Self {
        self.dependencies.pools = pools;
        self
    }

    /// Uses this provider for the inline profile of this name, instead of the one that the profile
    /// names. Its calls are not in the ledger.
    pub fn provider(mut self, profile: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        self.dependencies.providers.insert(profile.into(), provider);
        self
    }

    /// Limits the calls in flight, however many slots the worker has. Give the worker [`slots_for`]
    /// as many slots, so that rows before and after their call do not hold up others.
    pub fn max_in_flight(mut self, questions: u32) -> Self {
        self.max_in_flight = Some(questions);
        self
    }

    /// Adds answers of rows that are done to `samples`.
    pub fn samples(mut self, samples: Arc<AnswerSamples>) -> Self {
        self.samples = Some(samples);
        self
    }

    /// Sets the clock that prices of the day go by. Deadlines go by the store's time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the handler.
    pub fn build(self) -> RowHandler {
        let Self { dependencies, max_in_flight, clock, samples, label } = self;
        let ask_limit = max_in_flight.map(|max| Semaphore::new(max.max(1) as usize));
        RowHandler {
            batches: BatchCache::new(dependencies),
            worker_ids: Arc::default(),
            gauge: Arc::default(),
            ask_limit,
            clock,
            samples,
            label,
        }
    }
}

/// How many slots a worker needs to have `questions` calls in flight: some more, for rows that are
/// being read, saved or finished. Below 16 there are no extra slots: with so few, users count rows.
pub fn slots_for(questions: u32) -> u32 {
    if questions < 16 { questions } else { questions.saturating_add(questions / 8) }
}

impl Handler for RowHandler {
    type Input = RowInput;
    type Output = RowResult;

    async fn run(&self, context: Context, input: RowInput) -> HandlerResult<RowResult> {
        let number = self.worker_ids.acquire();
        let worker = format!("{}-{number}", self.label);
        let compiled = self.batches.get(&context).await.map_err(BatchLoadError::verdict)?;
        let key = from_json(&input.key);
        let mut run = RowExecution::new(&context, &compiled, &key, &worker, &self.clock, &self.gauge)?;
        run.problem = input.problem;
        run.ask_limit = self.ask_limit.as_ref();
        run.samples = self.samples.as_deref();
        run.run().await
    }
}
