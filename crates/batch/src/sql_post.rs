//! POST by rules and SQL: decides, and binds values to the statements.
//!
//! Values are always bound, never inserted into SQL text: whatever a model answers stays a value.

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore::outcome::Params;
use longshore::{Effect, SqlValue};
use longshore_ai::Answer;
use serde_json::Value;

use crate::definition::{PostVerdict, SqlPost, SqlStatement};
use crate::pre_post::{Apply, ApplyError, ApplyOutcome, ReplyError, RowReply, RowRun};
use crate::sql;
use crate::sql_json::{from_json, show_key};
use crate::verdict_rules::{RuleDecision, RuleInput, RuleSet};

/// Parameter names with a fixed meaning; a property of the answer with such a name is
/// `:answer_<name>`.
pub const RESERVED: [&str; 18] = [
    "status",
    "error_code",
    "error_message",
    "worker_id",
    "batch_id",
    "unit_id",
    "unit_key",
    "key",
    "attempt",
    "generation",
    "run_key",
    "answer",
    "model",
    "tokens_in",
    "tokens_out",
    "latency_ms",
    "cost_usd",
    "simulated",
];

/// A compiled [`SqlPost`].
#[derive(Debug)]
pub struct SqlApply {
    /// Values for names that the answer does not have.
    facts: Vec<(String, String)>,
    rules: RuleSet,
    always: Vec<CompiledStatement>,
    success: Vec<CompiledStatement>,
    fail: Vec<CompiledStatement>,
    retry: Vec<CompiledStatement>,
    skip: Vec<CompiledStatement>,
}

/// A statement and the names of its parameters.
#[derive(Debug)]
pub(crate) struct CompiledStatement {
    statement: SqlStatement,
    names: Vec<String>,
}

impl SqlApply {
    /// Compiles rules and statements. A parameter that is neither reserved nor one of the reply's
    /// properties is an error; without a list of them, any name is allowed.
    pub fn compile(post: &SqlPost, properties: Option<&[String]>) -> Result<Self, String> {
        let ready = |statements: &[SqlStatement]| -> Result<Vec<CompiledStatement>, String> {
            statements.iter().map(|one| CompiledStatement::new(one, properties)).collect()
        };
        Ok(Self {
            facts: Vec::new(),
            rules: RuleSet::compile(&post.rules).map_err(|error| error.to_string())?,
            always: ready(&post.always)?,
            success: ready(&post.success)?,
            fail: ready(&post.fail)?,
            retry: ready(&post.retry)?,
            skip: ready(&post.skip)?,
        })
    }

    /// Binds these values for names that the answer does not have.
    #[must_use]
    pub fn with_facts<'f>(mut self, facts: impl IntoIterator<Item = (&'static str, &'f str)>) -> Self {
        let owned = facts.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.facts.extend(owned);
        self
    }

    fn statements_for(&self, verdict: PostVerdict, reply: &RowReply) -> &[CompiledStatement] {
        match verdict {
            PostVerdict::Success if reply.is_skipped() => &self.skip,
            PostVerdict::Success => &self.success,
            PostVerdict::Fail => &self.fail,
            PostVerdict::Retry => &self.retry,
        }
    }
}

#[async_trait]
impl Apply for SqlApply {
    async fn apply(&self, row: &RowRun<'_>, reply: &RowReply) -> Result<ApplyOutcome, ApplyError> {
        let RowRun { attempt, is_last_attempt, .. } = *row;
        let facts = RuleInput { reply, attempt, is_last_attempt, answers: &row.answers };
        let decision = match row.has_ended {
            true => RuleDecision::failed(),
            false => self.rules.decide(&facts).map_err(ApplyError::Failed)?,
        };
        let statements = self.always.iter().chain(self.statements_for(decision.verdict, reply));
        let effects = statements.map(|ready| ready.bind(row, reply, &self.facts)).collect();
        Ok(ApplyOutcome {
            verdict: decision.verdict,
            reason: decision.reason,
            after: decision.after,
            effects,
        })
    }
}

impl CompiledStatement {
    pub(crate) fn new(statement: &SqlStatement, properties: Option<&[String]>) -> Result<Self, String> {
        let names = sql::parameters(&statement.sql);
        let unknown = names.iter().find(|name| !is_allowed(name, properties));
        if let Some(unknown) = unknown {
            return Err(format!("POST has no parameter `:{unknown}`: {}", statement.sql));
        }
        let names = names.into_iter().map(str::to_owned).collect();
        Ok(Self { statement: statement.clone(), names })
    }

    pub(crate) fn bind(&self, row: &RowRun<'_>, reply: &RowReply, facts: &[(String, String)]) -> Effect {
        let fact = |name: &str| facts.iter().find(|(value, _)| value == name);
        effect(&self.statement, &self.names, |name| match (value(name, row, reply), fact(name)) {
            (SqlValue::Null, Some((_, value))) => text(value),
            (value, _) => value,
        })
    }
}

/// A statement with a value for each of its names.
pub(crate) fn effect(statement: &SqlStatement, names: &[String], value: impl Fn(&str) -> SqlValue) -> Effect {
    let bound = names.iter().map(|name| (name.clone(), value(name))).collect();
    Effect { sql: statement.sql.clone(), params: Params::Named(bound), expected_rows: statement.rows }
}

fn is_allowed(name: &str, properties: Option<&[String]>) -> bool {
    let Some(properties) = properties else { return true };
    let is_property = |name: &str| properties.iter().any(|property| property == name);
    RESERVED.contains(&name) || is_property(name) || name.strip_prefix("answer_").is_some_and(is_property)
}

/// The value of a name. Reserved names win; a property that the answer lacks is NULL.
pub(crate) fn value(name: &str, row: &RowRun<'_>, reply: &RowReply) -> SqlValue {
    match name {
        "worker_id" => text(row.worker),
        "batch_id" => text(row.batch.as_str()),
        "unit_id" => text(&row.unit.to_string()),
        "unit_key" => text(&show_key(row.key)),
        "key" => row.key.clone(),
        "attempt" => SqlValue::Int(i64::from(row.attempt)),
        "generation" => SqlValue::Int(i64::from(row.generation)),
        "run_key" => text(&row.run_key),
        "status" => text(reply.status()),
        "error_code" => of_error(reply, |error| &error.code),
        "error_message" => of_error(reply, |error| &error.message),
        "cost_usd" => of_answer(reply, |_| SqlValue::Real(reply.cost.dollars())),
        "answer" => of_answer(reply, |answer| text(&answer.text)),
        "model" => of_answer(reply, |answer| text(&answer.model)),
        "tokens_in" => of_answer(reply, |answer| integer(answer.tokens_in)),
        "tokens_out" => of_answer(reply, |answer| integer(answer.tokens_out)),
        "latency_ms" => of_answer(reply, |answer| integer(answer.latency_ms)),
        "simulated" => of_answer(reply, |answer| SqlValue::Bool(answer.simulated)),
        property => of_property(property, row, reply),
    }
}

fn of_property(name: &str, row: &RowRun<'_>, reply: &RowReply) -> SqlValue {
    let property = |name: &str| reply.json.as_ref().and_then(|json| json.get(name));
    let found = property(name).or_else(|| name.strip_prefix("answer_").and_then(property));
    from_json(found.or_else(|| of_step(name, &row.answers)).unwrap_or(&Value::Null))
}

/// The value of `:STEP` or `:STEP_FIELD`, from the answer of an earlier step. Of a list of rows, the
/// first row's column.
pub(crate) fn of_step<'a>(name: &str, answers: &'a BTreeMap<String, Value>) -> Option<&'a Value> {
    if let Some(answer) = answers.get(name) {
        return Some(answer);
    }
    answers.iter().find_map(|(step, answer)| {
        let field = name.strip_prefix(step.as_str())?.strip_prefix('_')?;
        let answer = if answer.is_array() { answer.get(0)? } else { answer };
        answer.get(field)
    })
}

fn of_error(reply: &RowReply, part: impl Fn(&ReplyError) -> &str) -> SqlValue {
    reply.error.as_ref().map_or(SqlValue::Null, |error| text(part(error)))
}

fn of_answer(reply: &RowReply, part: impl Fn(&Answer) -> SqlValue) -> SqlValue {
    reply.answer.as_ref().map_or(SqlValue::Null, part)
}

fn text(text: &str) -> SqlValue {
    SqlValue::Text(text.to_owned())
}

fn integer(number: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
