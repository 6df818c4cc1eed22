//! Looks up prompts in a table: a request's `prompt_ref` is resolved by a query that the operator
//! configured.
//!
//! The query must use the tenant as a parameter, so that a reference cannot name another tenant's
//! prompt.

use std::sync::Arc;

use async_trait::async_trait;
use longshore::{SqlValue, TenantId};
use longshore_ai::{AskError, Code, Prompts};
use tokio::time::{Instant, timeout_at};

use crate::rows::{RowSource, SourceError};
use crate::throttled_log;

/// The parameters of the query.
const PARAMETERS: [&str; 3] = ["tenant", "ref", "id"];

/// Maximum size of a prompt.
const MAX_PROMPT_BYTES: usize = 32 << 20;

/// Prompts in a database.
pub struct SqlPrompts {
    source: Arc<dyn RowSource>,
    sql: String,
    params: Vec<String>,
}

impl SqlPrompts {
    /// Prompts found by `sql`, which must return one row with one column, by `:tenant` and by
    /// `:ref` (the whole reference) or `:id` (its part after the last dot, as in
    /// `LIBRARY.TABLE.ID`). An error if the query has another form.
    pub async fn new(source: Arc<dyn RowSource>, sql: String) -> Result<Self, SourceError> {
        let described = source.describe(&sql).await?;
        let invalid = |message: String| Err(SourceError::Data(message));
        let params = described.params;
        if let Some(other) = params.iter().find(|name| !PARAMETERS.contains(&name.as_str())) {
            return invalid(format!("unknown parameter `:{other}`: the query may use :tenant, :ref and :id"));
        }
        let uses = |name: &str| params.iter().any(|param| param == name);
        if !uses("tenant") {
            let message = "the query must use `:tenant`, or tenants could read each other's prompts";
            return invalid(message.to_owned());
        }
        if !uses("ref") && !uses("id") {
            return invalid("the query must use `:ref` or `:id`, the reference".to_owned());
        }
        if !described.read_only || described.columns.len() != 1 {
            return invalid("the query must be a SELECT of one column, the prompt".to_owned());
        }
        Ok(Self { source, sql, params })
    }

    async fn look_up(&self, tenant: &TenantId, reference: &str) -> Result<String, AskError> {
        let lookup_error =
            |why: &str| AskError::new(Code::InvalidRequest, format!("prompt_ref `{reference}`: {why}"));
        let value = |name: &String| match name.as_str() {
            "tenant" => tenant.as_str(),
            "id" => reference.rsplit('.').next().unwrap_or(reference),
            _ => reference,
        };
        let params = self.params.iter();
        let params: Vec<_> =
            params.map(|name| (name.clone(), SqlValue::Text(value(name).to_owned()))).collect();
        // The database's message goes to the log only: it may quote data that is not the caller's.
        let rows = self.source.fetch(&self.sql, &params).await.map_err(|error| {
            throttled_log::warn("a prompt cannot be looked up", "", error);
            AskError::new(Code::Internal, "the prompt cannot be looked up now")
        })?;
        let mut values = rows.into_iter().flat_map(|row| row.columns).map(|(_, value)| value);
        let text = match (values.next(), values.next()) {
            (None, _) => return Err(lookup_error("there is no such prompt")),
            (Some(_), Some(_)) => return Err(lookup_error("there is more than one such prompt")),
            (Some(SqlValue::Text(text)), None) => text,
            (Some(SqlValue::Blob(bytes)), None) => {
                String::from_utf8(bytes).map_err(|_| lookup_error("it is not UTF-8"))?
            }
            (Some(_), None) => return Err(lookup_error("it is not a text")),
        };
        match text.len() {
            0 => Err(lookup_error("it is empty")),
            1..=MAX_PROMPT_BYTES => Ok(text),
            _ => Err(lookup_error("it is too large")),
        }
    }
}

#[async_trait]
impl Prompts for SqlPrompts {
    async fn fetch(&self, tenant: &TenantId, reference: &str, until: Instant) -> Result<String, AskError> {
        let found = timeout_at(until, self.look_up(tenant, reference)).await;
        found.unwrap_or_else(|_| Err(AskError::new(Code::Timeout, "the prompt was not read in time")))
    }
}
