//! One row's run: prepared, asked, kept, applied.
//!
//! [`RowHandler`] serves every batch: it reads a unit's definition from the store and compiles it
//! once. The run itself is in `run` and `question`, what POST's word means for the unit in `verdict`.

mod job;
mod jobs;
mod numbers;
mod question;
mod reply;
mod run;
mod verdict;

use std::sync::Arc;

use longshore::{Clock, Context, Handler, HandlerResult, SystemClock};
use longshore_ai::Provider;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::jobs::Jobs;
use self::numbers::Numbers;
use self::run::Run;
use crate::definition::Verdict;
use crate::pilot::{Gauge, Pilot};
use crate::rows::Sources;
use crate::step::{Apply, Prepare};
use crate::value::from_json;

pub(crate) use self::job::{JobError, Outfit, definition};

/// Runs rows: the handler of [`crate::definition::ROW_KIND`].
///
/// No answer is paid for twice: it is kept in the unit's checkpoint before POST sees it, and a run
/// that finds one goes straight to POST. Where the rows are in the store's own database, POST's SQL
/// commits with the row's end, exactly once; elsewhere it is run before that, at least once, and
/// may use `:unit_id` and `:attempt` to recognise a repeat.
pub struct RowHandler {
    jobs: Jobs,
    numbers: Arc<Numbers>,
    gauge: Arc<Gauge>,
    clock: Arc<dyn Clock>,
    label: String,
}

/// A [`RowHandler`] in the making.
pub struct RowHandlerBuilder {
    outfit: Outfit,
    clock: Arc<dyn Clock>,
    label: String,
}

/// What a row's unit carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowInput {
    /// The row's key: a number or text.
    pub key: Value,
}

/// What is kept of a row that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// What POST said.
    pub verdict: Verdict,
    /// Which model answered; none where POST made a success of an error.
    pub model: Option<String>,
    /// Tokens of the question.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_out: u64,
    /// What it cost.
    pub cost_usd: f64,
    /// How long the answer took.
    pub latency_ms: u64,
    /// Whether the answer was made up.
    pub simulated: bool,
    /// Who worked on the row when it ended.
    pub worker: String,
}

impl RowHandler {
    /// Starts a handler's description. `sources` opens the databases that definitions name.
    pub fn builder(sources: Arc<Sources>) -> RowHandlerBuilder {
        RowHandlerBuilder {
            outfit: Outfit::new(sources),
            clock: Arc::new(SystemClock),
            label: format!("worker-{}", std::process::id()),
        }
    }

    /// What finds out how many rows at once this handler's providers can take.
    pub fn pilot(&self) -> Pilot {
        Pilot(Arc::clone(&self.gauge))
    }
}

#[expect(clippy::return_self_not_must_use, reason = "a builder without build() does nothing")]
impl RowHandlerBuilder {
    /// What `:worker_id` begins with; a number follows. Default `worker-<pid>`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// PRE by code: what a definition means by [`crate::definition::Pre::Code`] with this name.
    pub fn prepare(mut self, name: impl Into<String>, prepare: impl Prepare) -> Self {
        self.outfit.prepares.insert(name.into(), Arc::new(prepare));
        self
    }

    /// POST by code: what a definition means by [`crate::definition::Post::Code`] with this name.
    pub fn apply(mut self, name: impl Into<String>, apply: impl Apply) -> Self {
        self.outfit.applies.insert(name.into(), Arc::new(apply));
        self
    }

    /// Who answers for the profile of this name, instead of the provider it says.
    pub fn provider(mut self, profile: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        self.outfit.providers.insert(profile.into(), provider);
        self
    }

    /// Where the time is read that batches' deadlines are compared with.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The handler.
    pub fn build(self) -> RowHandler {
        let Self { outfit, clock, label } = self;
        RowHandler {
            jobs: Jobs::new(outfit),
            numbers: Arc::default(),
            gauge: Arc::default(),
            clock,
            label,
        }
    }
}

impl Handler for RowHandler {
    type Input = RowInput;
    type Output = RowResult;

    async fn run(&self, context: Context, input: RowInput) -> HandlerResult<RowResult> {
        let number = self.numbers.take();
        let worker = format!("{}-{number}", self.label);
        let job = self.jobs.of(&context).await.map_err(JobError::verdict)?;
        let key = from_json(&input.key);
        Run::new(&context, &job, &key, &worker, &*self.clock, &self.gauge)?.run().await
    }
}
