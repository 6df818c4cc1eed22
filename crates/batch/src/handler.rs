//! One row's run: prepared, asked, kept, applied.
//!
//! [`RowHandler`] serves every batch: it reads a unit's definition from the store and compiles it
//! once. The run itself is in `run` and `question`, what POST's word means for the unit in `verdict`.

mod asker;
mod bulk;
mod job;
mod jobs;
mod mailed;
mod numbers;
mod question;
mod reply;
mod run;
mod verdict;

use std::sync::Arc;

use longshore::{Clock, Context, Handler, HandlerResult, PoolBook, SystemClock};
use longshore_ai::{Desk, Gauge, Pilot, Provider};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::jobs::Jobs;
use self::numbers::Numbers;
use self::run::Run;
use crate::command::Commands;
use crate::definition::Verdict;
use crate::mail::Office;
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
    gate: Option<Semaphore>,
    clock: Arc<dyn Clock>,
    label: String,
}

/// A [`RowHandler`] in the making.
pub struct RowHandlerBuilder {
    outfit: Outfit,
    at_once: Option<u32>,
    clock: Arc<dyn Clock>,
    label: String,
}

/// What a row's unit carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowInput {
    /// The row's key: a number or text.
    pub key: Value,
    /// What is wrong with the row, so that it can only fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
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
            at_once: None,
            clock: Arc::new(SystemClock),
            label: format!("worker-{}", std::process::id()),
        }
    }

    /// What finds out how many rows at once this handler's providers can take.
    pub fn pilot(&self) -> Pilot {
        Pilot::new(Arc::clone(&self.gauge))
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

    /// Where the commands of definitions are started. Whoever has others that share them gives them
    /// the same.
    pub fn commands(mut self, commands: Arc<Commands>) -> Self {
        self.outfit.commands = commands;
        self
    }

    /// Where rows ask whose profile is in the ledger or needs the network. Without it, their batches
    /// are left for another worker. Somebody has to keep its books ([`Desk::keep_books`]).
    pub fn desk(mut self, desk: Desk) -> Self {
        self.outfit.desk = Some(desk);
        self
    }

    /// Where messages to rows are kept until they are sent. Without it, batches that write to their rows
    /// are left for another worker.
    pub fn office(mut self, office: Arc<dyn Office>) -> Self {
        self.outfit.office = Some(office);
        self
    }

    /// The bounded pools that definitions may name. Batches that name another are left for another worker.
    pub fn pools(mut self, pools: PoolBook) -> Self {
        self.outfit.pools = pools;
        self
    }

    /// Who answers for the written profile of this name, instead of the provider it says. There are
    /// no books of it.
    pub fn provider(mut self, profile: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        self.outfit.providers.insert(profile.into(), provider);
        self
    }

    /// At most so many questions are out at once, however many slots the worker has: give it
    /// [`slots_for`] as many, and rows before and after their question do not hold up others.
    pub fn at_once(mut self, questions: u32) -> Self {
        self.at_once = Some(questions);
        self
    }

    /// Where the time is read that batches' deadlines are compared with.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The handler.
    pub fn build(self) -> RowHandler {
        let Self { outfit, at_once, clock, label } = self;
        let gate = at_once.map(|most| Semaphore::new(most.max(1) as usize));
        RowHandler {
            jobs: Jobs::new(outfit),
            numbers: Arc::default(),
            gauge: Arc::default(),
            gate,
            clock,
            label,
        }
    }
}

/// How many slots a worker wants that is to have `questions` out at once: some more, for rows that
/// are being read, kept or recorded. Few workers get none: there it is rows that people count.
pub fn slots_for(questions: u32) -> u32 {
    if questions < 16 { questions } else { questions.saturating_add(questions / 8) }
}

impl Handler for RowHandler {
    type Input = RowInput;
    type Output = RowResult;

    async fn run(&self, context: Context, input: RowInput) -> HandlerResult<RowResult> {
        let number = self.numbers.take();
        let worker = format!("{}-{number}", self.label);
        let job = self.jobs.of(&context).await.map_err(JobError::verdict)?;
        let key = from_json(&input.key);
        let mut run = Run::new(&context, &job, &key, &worker, &self.clock, &self.gauge)?;
        run.problem = input.problem;
        run.gate = self.gate.as_ref();
        run.run().await
    }
}
