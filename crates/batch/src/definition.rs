//! The complete definition of a batch: the files it names are read into it, and every default is
//! filled in. Stored with the batch as JSON.
//!
//! Plain data. [`crate::file`] reads a batch file, [`crate::check`] checks a definition against the
//! database.

mod ai;
mod command;
mod mail;
mod revision;
mod step;

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::batch::FailureThreshold;
use longshore::{OnLost, PoolName, RetryPolicy, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rows::DatabaseFingerprint;

pub use self::ai::{Ai, AskRoute, DEFAULT_MAX_PROMPT, ProfileRef, ProviderBatchOptions};
pub use self::command::{CommandPost, CommandPre, CommandSpec};
pub use self::mail::{Mail, MailMode};
pub use self::revision::{Revision, RevisionError};
pub use self::step::{RowStepSpec, StepAction, StepPrompt};

/// The kind of a row's unit.
pub const ROW_KIND: &str = "batch.row";
/// The kind of the unit that runs a batch's completion action.
pub const COMPLETION_KIND: &str = "batch.end";
/// The kind of the unit that submits a batch's questions to the provider's batch API.
pub const PROVIDER_BATCH_KIND: &str = "batch.bulk";
/// The queue of these units; each tenant has its lane.
pub const QUEUE: &str = "batch";

/// Everything that a batch does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The version of this record: 1.
    pub version: u32,
    /// The file it was read from, for people; `batch run` also finds its unfinished batch by it.
    pub source: String,
    /// The batch's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The owner.
    pub tenant: TenantId,
    /// The database with the rows.
    pub database: Database,
    /// What identifies that database if it is not the store's own. Set when the batch is started. A worker that
    /// finds another database there leaves the rows alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<DatabaseFingerprint>,
    /// How many rows run at once.
    pub workers: RowConcurrency,
    /// The rows.
    pub candidates: Candidates,
    /// How a row becomes a prompt or a message.
    pub pre: Pre,
    /// Steps before the last one, in order. Later steps and POST see their answers by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RowStepSpec>,
    /// The last step of a row, between PRE and POST.
    #[serde(flatten)]
    pub step: RowStep,
    /// How the step's reply is applied.
    pub post: Post,
    /// The delays and the number of attempts after RETRY.
    pub retry: RetryPolicy,
    /// What happens to a row after its worker died with a call in flight, which may have been
    /// billed.
    pub on_lost: OnLost,
    /// No call is made after this time.
    pub deadline: Option<Timestamp>,
    /// The number or share of failures that stops the batch.
    pub threshold: Option<FailureThreshold>,
    /// The action at the end, once per generation.
    pub completion: Option<Action>,
    /// When an operator is alerted.
    pub alerts: Alerts,
    /// A run on some of the rows: people look at its answers before the others are run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// The revision: 1, and one more after each correction of the running batch.
    #[serde(default = "first_revision")]
    pub revision: u32,
    /// The corrections, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<Revision>,
}

/// What a run on some of the rows is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trial {
    /// Its rows are done for good: a later batch runs the rest.
    Apply,
    /// Its answers are kept and not applied.
    AskOnly,
}

fn first_revision() -> u32 {
    1
}

impl Definition {
    /// Makes it a trial: the answers are kept, and there is no completion action. [`Trial::AskOnly`] also removes the
    /// SQL and the command of POST (its rules stay), and claims no row.
    pub fn make_trial(&mut self, trial: Trial) {
        self.trial = Some(trial);
        self.completion = None;
        if let RowStep::Ai(ai) = &mut self.step {
            ai.keep_answers = true;
        }
        if trial == Trial::AskOnly {
            self.candidates.claim = None;
            let rules = match &mut self.post {
                Post::Sql(post) => std::mem::take(&mut post.rules),
                Post::Command(_) | Post::Code(_) => Vec::new(),
            };
            self.post = Post::Sql(SqlPost { rules, ..SqlPost::default() });
        }
    }

    /// The model's settings, if the rows ask a model.
    pub fn ai(&self) -> Option<&Ai> {
        match &self.step {
            RowStep::Ai(ai) => Some(ai),
            RowStep::Mail(_) => None,
        }
    }

    /// The settings of all questions of a row, in order.
    pub fn questions(&self) -> impl Iterator<Item = &Ai> {
        self.steps.iter().filter_map(|step| step.ai()).chain(self.ai())
    }

    /// The retry policy of a row's unit: each step has attempts of its own.
    pub fn unit_retry(&self) -> RetryPolicy {
        let own = |step: &RowStepSpec| step.retry.as_ref().unwrap_or(&self.retry).max_attempts;
        let max_attempts = self.steps.iter().map(own).fold(self.retry.max_attempts, u32::saturating_add);
        RetryPolicy { max_attempts, ..self.retry.clone() }
    }

    /// The message's settings, if the rows get a message.
    pub fn mail(&self) -> Option<&Mail> {
        match &self.step {
            RowStep::Ai(_) => None,
            RowStep::Mail(mail) => Some(mail),
        }
    }

    /// The settings of the provider batch, if the rows use one.
    pub fn provider_batch(&self) -> Option<ProviderBatchOptions> {
        self.ai()?.provider_batch
    }

    /// The time from the start of a row's run to the reply of its step.
    pub fn timeout(&self) -> Duration {
        match &self.step {
            RowStep::Ai(ai) => ai.timeout,
            RowStep::Mail(mail) => mail.timeout,
        }
    }

    /// The bounded pool of which each step in flight holds a permit.
    pub fn pool(&self) -> Option<&PoolName> {
        match &self.step {
            RowStep::Ai(ai) => ai.pool.as_ref(),
            RowStep::Mail(mail) => mail.pool.as_ref(),
        }
    }
}

/// What a row does between PRE and POST: the key `ai` or `mail`, as in the batch file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowStep {
    /// Asks a model.
    Ai(Ai),
    /// Puts a message into the spool.
    Mail(Mail),
}

/// The database with the rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Database {
    /// In the store's own database: POST's SQL commits in one transaction with the row's finish.
    Store,
    /// In another database, such as `sqlite:/path/orders.db`. `env:NAME` reads the URL from that
    /// variable and `file:PATH` from that file, so that no password is stored. POST runs at least once.
    Url(String),
}

/// How many rows run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowConcurrency {
    /// This many.
    Fixed(u32),
    /// Adapted to measured latency and errors.
    Auto,
}

impl Default for RowConcurrency {
    fn default() -> Self {
        Self::Fixed(20)
    }
}

/// The rows of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidates {
    /// A SELECT without ORDER BY or LIMIT; parameters are written as `:name`.
    pub sql: String,
    /// The column that identifies a row: unique, not null, a number or text. Rows are sent in its
    /// order.
    pub key: String,
    /// The column with a row's priority, 1 (first) to 9 (last).
    pub priority: Option<String>,
    /// The parameters' values: null, bool, number or text.
    pub params: BTreeMap<String, Value>,
    /// The maximum number of rows.
    pub limit: Option<u64>,
    /// Only some of the rows, spread evenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<RowSample>,
    /// Only the rows with these keys, whatever the SQL returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<Value>>,
    /// Skip rows that another batch with the same claim has ended since this time. `None`: since this batch was
    /// initiated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_since: Option<Timestamp>,
    /// Two batches with the same claim do not run the same row at the same time. `None`: no check.
    pub claim: Option<String>,
    /// How many unfinished rows there may be before the initiator waits for the workers.
    pub ahead: u64,
}

/// A sample of the candidates, spread evenly over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSample {
    /// How many rows.
    pub rows: u64,
    /// Of how many candidates.
    pub of: u64,
}

impl RowSample {
    /// How many of the first `candidates` are in the sample.
    pub fn rows_within(self, candidates: u64) -> u64 {
        let (rows, of) = (u128::from(self.rows), u128::from(self.of.max(1)));
        // Rounded up, so that the first candidate is in the sample.
        let within = (u128::from(candidates) * rows).div_ceil(of);
        u64::try_from(within).unwrap_or(u64::MAX).min(self.rows).min(candidates)
    }

    /// Whether the candidate at this position, from 0, is in the sample.
    pub fn has(self, position: u64) -> bool {
        self.rows_within(position + 1) > self.rows_within(position)
    }
}

/// How a row becomes a prompt or a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pre {
    /// SQL and a template.
    Sql(SqlPre),
    /// Code registered under this name ([`crate::pre_post::Prepare`]).
    Code(String),
    /// A persistent command, called for each row.
    Command(CommandPre),
}

/// PRE by SQL and a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SqlPre {
    /// Reads the row by `:key`. It must return exactly one row; its columns are the template's
    /// variables.
    pub sql: String,
    /// Further reads, each a list of rows under its name in the template.
    pub lists: BTreeMap<String, String>,
    /// The prompt or the message's page, a minijinja template.
    pub template: String,
    /// Where the template was written, for messages.
    pub template_name: String,
}

/// How an answer is applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Post {
    /// Rules and SQL.
    Sql(SqlPost),
    /// Code registered under this name ([`crate::pre_post::Apply`]).
    Code(String),
    /// A persistent command, called for each row.
    Command(CommandPost),
}

/// POST by rules and SQL.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SqlPost {
    /// The first rule that matches decides; without a match the reply decides.
    pub rules: Vec<Rule>,
    /// Run for every reply, before the others.
    pub always: Vec<SqlStatement>,
    /// Run on SUCCESS.
    pub success: Vec<SqlStatement>,
    /// Run on FAIL.
    pub fail: Vec<SqlStatement>,
    /// Run on RETRY.
    pub retry: Vec<SqlStatement>,
    /// Run instead of `success` for a row that PRE skipped.
    #[serde(default)]
    pub skip: Vec<SqlStatement>,
}

/// One rule of POST.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// A minijinja expression over `status`, `error_code`, `error_message`, `answer`, `text`,
    /// `finish_reason`, `attempt`.
    pub when: String,
    /// The verdict for the row.
    pub then: PostVerdict,
    /// The reason for lists and reports; a template over the same names.
    pub reason: Option<String>,
    /// With RETRY: wait exactly this long.
    pub after: Option<Duration>,
}

/// POST's verdict on a row; see docs/batch.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PostVerdict {
    /// The row is done.
    Success,
    /// The row fails.
    Fail,
    /// The model is asked again.
    Retry,
}

/// One SQL statement with `:name` parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlStatement {
    /// INSERT, UPDATE or DELETE.
    pub sql: String,
    /// How many rows it must change; another count is a POST error.
    pub rows: Option<u64>,
}

/// An action that runs once, at the end of a batch or for an alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A command with the facts as JSON on its standard input.
    Command(Vec<String>),
    /// A POST of the facts as JSON to this URL.
    Http(String),
    /// A mail with the facts, at the end of a batch.
    Mail(EndMail),
    /// SQL with the facts bound (`:batch_id`, `:status`, `:generation`, `:total`, `:done`,
    /// `:failed`, `:cancelled`).
    Sql(Vec<SqlStatement>),
}

/// The mail at the end of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndMail {
    /// The sender.
    pub from: String,
    /// The recipients.
    pub to: Vec<String>,
}

/// When an operator is alerted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alerts {
    /// A running batch in which no row ends for this long raises an alert.
    pub no_progress: Duration,
    /// The action, in addition to the log.
    pub action: Option<Action>,
}

impl Default for Alerts {
    fn default() -> Self {
        Self { no_progress: Duration::from_secs(600), action: None }
    }
}
