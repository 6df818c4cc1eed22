//! Prompts by reference from a table: what `prompt_ref` of a request names is looked up by a query that
//! the operator has written.
//!
//! The query has the tenant as a parameter and must use it: a request's reference alone cannot name
//! another tenant's prompt.

use std::sync::Arc;

use async_trait::async_trait;
use longshore::{SqlValue, TenantId};
use longshore_ai::{AskError, Code, Prompts};
use tokio::time::{Instant, timeout_at};

use crate::rows::{RowSource, SourceError};

/// What a query may ask for.
const PARAMETERS: [&str; 3] = ["tenant", "ref", "id"];

/// The longest prompt that is taken.
const MOST: usize = 32 << 20;

/// Prompts in a database.
pub struct SqlPrompts {
    source: Arc<dyn RowSource>,
    sql: String,
    params: Vec<String>,
}

impl SqlPrompts {
    /// Prompts that `sql` finds: one row with one column, by `:tenant` and by `:ref` (all of the
    /// reference) or `:id` (what stands after its last dot, as in `LIBRARY.TABLE.ID`). An error if it
    /// does not keep to that.
    pub async fn new(source: Arc<dyn RowSource>, sql: String) -> Result<Self, SourceError> {
        let described = source.describe(&sql).await?;
        let bad = |words: String| Err(SourceError::Data(words));
        let params = described.params;
        if let Some(other) = params.iter().find(|name| !PARAMETERS.contains(&name.as_str())) {
            return bad(format!("there is no `:{other}`: known are :tenant, :ref and :id"));
        }
        let uses = |name: &str| params.iter().any(|param| param == name);
        if !uses("tenant") {
            let words =
                "the query must look at `:tenant`, or tenants could read each other's prompts";
            return bad(words.to_owned());
        }
        if !uses("ref") && !uses("id") {
            return bad("the query must look at `:ref` or `:id`, the reference".to_owned());
        }
        if !described.reads_only || described.columns.len() != 1 {
            return bad("the query must be a SELECT of one column, the prompt".to_owned());
        }
        Ok(Self { source, sql, params })
    }

    async fn look_up(&self, tenant: &TenantId, reference: &str) -> Result<String, AskError> {
        let unknown = |why: &str| {
            AskError::new(Code::InvalidRequest, format!("prompt_ref `{reference}`: {why}"))
        };
        let value = |name: &String| match name.as_str() {
            "tenant" => tenant.as_str(),
            "id" => reference.rsplit('.').next().unwrap_or(reference),
            _ => reference,
        };
        let params = self.params.iter();
        let params: Vec<_> =
            params.map(|name| (name.clone(), SqlValue::Text(value(name).to_owned()))).collect();
        // The database's own words are for the operator: they may quote what is not the caller's.
        let rows = self.source.fetch(&self.sql, &params).await.map_err(|error| {
            tracing::warn!(%error, "a prompt cannot be looked up");
            AskError::new(Code::Internal, "the prompt cannot be looked up now")
        })?;
        let mut values = rows.into_iter().flat_map(|row| row.columns).map(|(_, value)| value);
        let text = match (values.next(), values.next()) {
            (None, _) => return Err(unknown("there is no such prompt")),
            (Some(_), Some(_)) => return Err(unknown("there is more than one such prompt")),
            (Some(SqlValue::Text(text)), None) => text,
            (Some(SqlValue::Blob(bytes)), None) => {
                String::from_utf8(bytes).map_err(|_| unknown("it is not UTF-8"))?
            }
            (Some(_), None) => return Err(unknown("it is not a text")),
        };
        match text.len() {
            0 => Err(unknown("it is empty")),
            1..=MOST => Ok(text),
            _ => Err(unknown("it is too large")),
        }
    }
}

#[async_trait]
impl Prompts for SqlPrompts {
    async fn fetch(
        &self,
        tenant: &TenantId,
        reference: &str,
        until: Instant,
    ) -> Result<String, AskError> {
        let looked = timeout_at(until, self.look_up(tenant, reference)).await;
        looked.unwrap_or_else(|_| {
            Err(AskError::new(Code::Timeout, "the prompt was not read in time"))
        })
    }
}
