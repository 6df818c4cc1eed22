//! What a batch is to do, complete: every file it names has been read into it, every default is
//! filled in. Kept in the store with the batch, as JSON.
//!
//! Plain data. Reading a batch file is [`crate::file`]'s part, checking against the database
//! [`crate::check`]'s.

mod ai;
mod command;
mod mail;

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::batch::FailureThreshold;
use longshore::{OnLost, RetryPolicy, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::ai::{Ai, ByProfile, ProviderBatch, Through};
pub use self::command::{Command, CommandPost, CommandPre};
pub use self::mail::{Mail, MailMode};

/// The kind of unit that one row is.
pub const ROW_KIND: &str = "batch.row";
/// The kind of unit that announces a batch's end.
pub const END_KIND: &str = "batch.end";
/// The kind of unit that takes a batch's questions to a provider, if they go there together.
pub const BULK_KIND: &str = "batch.bulk";
/// The queue they wait in; each tenant has its lane.
pub const QUEUE: &str = "batch";

/// Everything about a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The form of this record: 1.
    pub version: u32,
    /// The file it was read from, for people; also how `batch run` finds its unfinished batch.
    pub source: String,
    /// What sort of batch.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whose it is.
    pub tenant: TenantId,
    /// Where the rows are.
    pub database: Database,
    /// How many rows are worked on at once.
    pub workers: Workers,
    /// Which rows.
    pub candidates: Candidates,
    /// How a row becomes a question.
    pub pre: Pre,
    /// Who is asked, and how.
    pub ai: Ai,
    /// Rows are written to, and nobody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<Mail>,
    /// What becomes of the answer.
    pub post: Post,
    /// After RETRY.
    pub retry: RetryPolicy,
    /// What becomes of a row whose worker died while the question was out: it may have been billed.
    pub on_lost: OnLost,
    /// No row is asked about after this.
    pub deadline: Option<Timestamp>,
    /// How many failures are too many.
    pub threshold: Option<FailureThreshold>,
    /// What is done at the end, once per generation.
    pub completion: Option<Action>,
    /// When somebody should look.
    pub alerts: Alerts,
}

/// Where the rows are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Database {
    /// In the store's own database: SQL of POST commits in one transaction with the row's end.
    Store,
    /// Elsewhere, as `sqlite:/path/orders.db`; `env:NAME` means the URL in that variable, so that
    /// no password is kept. POST is at least once.
    Url(String),
}

/// How many rows at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workers {
    /// So many.
    Fixed(u32),
    /// By measured latency and errors.
    Auto,
}

impl Default for Workers {
    fn default() -> Self {
        Self::Fixed(20)
    }
}

/// Which rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidates {
    /// A SELECT without ORDER BY or LIMIT of its own; parameters as `:name`.
    pub sql: String,
    /// The column that names a row: unique, not null, number or text. Rows come in its order.
    pub key: String,
    /// The column with a row's priority, 1 (first) to 9 (last).
    pub priority: Option<String>,
    /// The parameters' values: null, bool, number or text.
    pub params: BTreeMap<String, Value>,
    /// At most so many rows.
    pub limit: Option<u64>,
    /// Batches with the same claim do not take the same row at the same time. `None`: they may.
    pub claim: Option<String>,
    /// How many rows may wait unfinished before the initiator waits for the workers.
    pub ahead: u64,
}

/// How a row becomes a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pre {
    /// By SQL and a template.
    Sql(SqlPre),
    /// By code, registered under this name ([`crate::step::Prepare`]).
    Code(String),
    /// By a command, which stays and is called for each row.
    Command(CommandPre),
}

/// PRE by SQL and a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SqlPre {
    /// Reads the row: `:key` is bound. Exactly one row must come; its columns are the template's
    /// variables.
    pub sql: String,
    /// Further reads, each a list of rows under its name in the template.
    pub lists: BTreeMap<String, String>,
    /// The prompt, a minijinja template.
    pub template: String,
    /// Where the template was written, for error messages.
    pub template_name: String,
}

/// What becomes of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Post {
    /// By rules and SQL.
    Sql(SqlPost),
    /// By code, registered under this name ([`crate::step::Apply`]).
    Code(String),
    /// By a command, which stays and is called for each row.
    Command(CommandPost),
}

/// POST by rules and SQL.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SqlPost {
    /// The first that matches decides; none: by the reply alone.
    pub rules: Vec<Rule>,
    /// What is run for every reply, before the others.
    pub always: Vec<Statement>,
    /// What is run on SUCCESS.
    pub success: Vec<Statement>,
    /// What is run on FAIL.
    pub fail: Vec<Statement>,
    /// What is run on RETRY.
    pub retry: Vec<Statement>,
    /// What is run instead of `success` for a row that PRE skipped.
    #[serde(default)]
    pub skip: Vec<Statement>,
}

/// One rule of POST.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// A minijinja expression over `status`, `error_code`, `error_message`, `answer`, `text`,
    /// `finish_reason`, `attempt`.
    pub when: String,
    /// What the row comes to.
    pub then: Verdict,
    /// Why, for lists and reports; a template over the same names.
    pub reason: Option<String>,
    /// With RETRY: wait exactly this long.
    pub after: Option<Duration>,
}

/// What POST says of a row. Three suffice: see docs/batch.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// It is done.
    Success,
    /// It will not be.
    Fail,
    /// It should be asked again.
    Retry,
}

/// One SQL statement with `:name` parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// INSERT, UPDATE or DELETE.
    pub sql: String,
    /// How many rows it must change; anything else is a POST error.
    pub rows: Option<u64>,
}

/// Something done once, at the end or when somebody should look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A command; the facts come as JSON on its standard input.
    Command(Vec<String>),
    /// A POST of the facts as JSON to this URL.
    Http(String),
    /// SQL with the facts bound (`:batch_id`, `:status`, `:generation`, `:total`, `:done`,
    /// `:failed`, `:cancelled`).
    Sql(Vec<Statement>),
}

/// When somebody should look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alerts {
    /// A running batch in which nothing ended for this long.
    pub no_progress: Duration,
    /// What is done then, beside the log.
    pub action: Option<Action>,
}

impl Default for Alerts {
    fn default() -> Self {
        Self { no_progress: Duration::from_secs(600), action: None }
    }
}
