//! Reading calls, one by one and summed up.

use longshore_accounts::rows::{CALL_COLUMNS, read_call};
use longshore_accounts::{Call, Usage, UsageBy, UsageFilter, page_cursor};
use longshore_core::store::Page;
use longshore_core::{BatchId, ProfileName, Result, Scope, TenantId, Timestamp};
use tokio_postgres::Row;

use super::call_row::{OwnedParams, borrow_params};
use super::page;
use crate::queries;
use crate::row::{Columns, count, value};
use crate::tx::Tx;
use crate::typed_params::{SqlParam, call_uuid, replace_nul};

/// A filter as conditions on `longshore_call c`, with its parameters.
struct UsageConditions {
    sql: String,
    params: OwnedParams,
}

impl UsageConditions {
    /// Adds only the conditions that are set, so that the planner can choose an index.
    fn of(scope: &Scope, filter: &UsageFilter) -> Self {
        let mut all = Self { sql: "true".to_owned(), params: Vec::new() };
        let text = |text: &str| Box::new(replace_nul(text));
        if let Some(tenant) = queries::tenant(scope) {
            all.add("c.tenant =", text(tenant));
        }
        if let Some(tenant) = &filter.tenant {
            all.add("c.tenant =", text(TenantId::as_str(tenant)));
        }
        if let Some(request) = &filter.request_id {
            all.add("c.request_id =", text(request));
        }
        if let Some(batch) = &filter.batch {
            all.add("c.batch =", text(BatchId::as_str(batch)));
        }
        if let Some(profile) = &filter.profile {
            all.add("c.profile =", text(ProfileName::as_str(profile)));
        }
        if let Some(since) = filter.since {
            all.add("c.opened_at >=", Box::new(Timestamp::as_micros(since)));
        }
        if let Some(until) = filter.until {
            all.add("c.opened_at <", Box::new(Timestamp::as_micros(until)));
        }
        all
    }

    /// Adds a condition. `compare` is the text before the parameter.
    fn add(&mut self, compare: &str, param: Box<dyn SqlParam + Send>) {
        self.params.push(param);
        self.sql += &format!(" AND {compare} ${}", self.params.len());
    }
}

/// Calls, the newest first.
pub(crate) async fn calls(
    tx: &mut Tx<'_>,
    scope: &Scope,
    filter: &UsageFilter,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Call>> {
    let mut conditions = UsageConditions::of(scope, filter);
    if let Some(after) = after {
        let (time, id) = page_cursor::call(after)?;
        conditions.params.push(Box::new(time.as_micros()));
        conditions.params.push(Box::new(call_uuid(id)));
        let last = conditions.params.len();
        conditions.sql += &format!(" AND (c.opened_at, c.id) < (${}, ${last})", last - 1);
    }
    let sql = format!(
        "SELECT {CALL_COLUMNS} FROM longshore_call c WHERE {}
         ORDER BY c.opened_at DESC, c.id DESC LIMIT {}",
        conditions.sql,
        u64::from(limit) + 1
    );
    let rows = tx.query(&sql, &borrow_params(&conditions.params)).await?;
    page(&rows, limit, "a call", |row| read_call(&Columns(row)), page_cursor::after_call)
}

/// Totals of calls by group.
pub(crate) async fn usage(
    tx: &mut Tx<'_>,
    scope: &Scope,
    filter: &UsageFilter,
    by: UsageBy,
) -> Result<Vec<Usage>> {
    let conditions = UsageConditions::of(scope, filter);
    let sql = format!(
        "SELECT g.* FROM (SELECT {} AS name, count(*), count(*) FILTER (WHERE c.status = 0),
         count(*) FILTER (WHERE c.status = 2), count(*) FILTER (WHERE c.status = 3),
         count(*) FILTER (WHERE c.estimated), longshore_clamp_bigint(sum(c.tokens_in)),
         longshore_clamp_bigint(sum(c.tokens_out)), longshore_clamp_bigint(sum(c.tokens_cached)),
         longshore_clamp_bigint(sum(c.cost_picos))
         FROM longshore_call c WHERE {} GROUP BY 1) g ORDER BY g.name COLLATE \"C\"",
        group(by),
        conditions.sql
    );
    let rows = tx.query(&sql, &borrow_params(&conditions.params)).await?;
    rows.iter().map(read_usage).collect()
}

/// The SQL expression of a call's group.
fn group(by: UsageBy) -> &'static str {
    match by {
        UsageBy::Tenant => "c.tenant",
        UsageBy::Model => "coalesce(nullif(c.answering_model, ''), c.model)",
        UsageBy::Day => "to_char(to_timestamp(c.opened_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        UsageBy::Batch => "coalesce(c.batch, '')",
        UsageBy::Profile => "c.tenant || '/' || c.profile",
    }
}

fn read_usage(row: &Row) -> Result<Usage> {
    Ok(Usage {
        name: value(row, 0)?,
        calls: count(row, 1)?,
        open: count(row, 2)?,
        errors: count(row, 3)?,
        maybe_billed: count(row, 4)?,
        estimated: count(row, 5)?,
        tokens_in: count(row, 6)?,
        tokens_out: count(row, 7)?,
        tokens_cached: count(row, 8)?,
        cost_picos: value(row, 9)?,
    })
}
