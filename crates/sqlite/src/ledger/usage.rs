//! Usage: lists and sums of calls.

use longshore_accounts::{Call, Usage, UsageBy, UsageFilter, page_cursor};
use longshore_core::store::Page;
use longshore_core::{BatchId, ProfileName, Result, Scope, TenantId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::call_row;
use crate::error::Translate;
use crate::queries::tenant_filter;

/// The conditions of a filter. Conditions that are not set are omitted, so that each statement can
/// use its index.
#[derive(Default)]
struct SqlConditions {
    sql: String,
    values: Vec<Value>,
}

impl SqlConditions {
    fn of(scope: &Scope, filter: &UsageFilter) -> Self {
        let mut all = Self::default();
        // A request or a batch has few calls, a tenant many: use the index of the former. Without
        // the unary plus SQLite would use the tenant's index, which has the right order.
        let narrow = filter.request_id.is_some() || filter.batch.is_some();
        let tenant = if narrow { "+tenant = ?" } else { "tenant = ?" };
        all.add(tenant, tenant_filter(scope));
        all.add(tenant, filter.tenant.as_ref().map(TenantId::as_str));
        all.add("request_id = ?", filter.request_id.as_deref());
        all.add("batch = ?", filter.batch.as_ref().map(BatchId::as_str));
        all.add("profile = ?", filter.profile.as_ref().map(ProfileName::as_str));
        all.add_time("opened_at >= ?", filter.since);
        all.add_time("opened_at < ?", filter.until);
        all
    }

    fn add(&mut self, condition: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(condition, [Value::from(value.to_owned())]);
        }
    }

    fn add_time(&mut self, condition: &str, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.push(condition, [Value::from(time.as_micros())]);
        }
    }

    fn push(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.sql += if self.sql.is_empty() { " WHERE " } else { " AND " };
        self.sql += condition;
        self.values.extend(values);
    }
}

/// Calls, newest first.
pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    filter: &UsageFilter,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Call>> {
    let mut conditions = SqlConditions::of(scope, filter);
    if let Some((opened_at, id)) = after.map(page_cursor::call).transpose()? {
        let place = [Value::from(opened_at.as_micros()), Value::from(id.as_bytes().to_vec())];
        conditions.push("(opened_at, id) < (?, ?)", place);
    }
    let rest = conditions.sql + " ORDER BY opened_at DESC, id DESC LIMIT ?";
    conditions.values.push(Value::from(i64::from(limit) + 1));
    let items = call_row::select(db, &rest, params_from_iter(conditions.values))?;
    Ok(Page::first(items, limit, page_cursor::after_call))
}

fn group(by: UsageBy) -> &'static str {
    match by {
        UsageBy::Tenant => "tenant",
        UsageBy::Model => "coalesce(nullif(answering_model, ''), model)",
        UsageBy::Day => "strftime('%Y-%m-%d', opened_at / 1000000, 'unixepoch')",
        UsageBy::Batch => "coalesce(batch, '')",
        UsageBy::Profile => "tenant || '/' || profile",
    }
}

/// Usage summed by group.
pub(crate) fn sums(db: &Connection, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>> {
    let conditions = SqlConditions::of(scope, filter);
    // Costs are summed in two parts, so that neither overflows.
    let sql = format!(
        "SELECT {}, count(*), sum(status = 0), sum(status = 2), sum(status = 3),
         coalesce(sum(estimated), 0), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0),
         coalesce(sum(tokens_cached), 0), coalesce(sum(cost_picos / {COST_SPLIT}), 0),
         coalesce(sum(cost_picos % {COST_SPLIT}), 0) FROM longshore_call{} GROUP BY 1 ORDER BY 1",
        group(by),
        conditions.sql
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query(params_from_iter(conditions.values)).or_translate()?;
    let mut sums = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        let part = |at| row.get::<_, i64>(at).map(i128::from).or_translate();
        let total = part(9)? * COST_SPLIT + part(10)?;
        let cost_picos = i64::try_from(total).unwrap_or(i64::MAX);
        sums.push(Usage { cost_picos, ..counts(row).or_translate()? });
    }
    Ok(sums)
}

const COST_SPLIT: i128 = 1_000_000_000;

fn counts(row: &Row<'_>) -> rusqlite::Result<Usage> {
    Ok(Usage {
        name: row.get(0)?,
        calls: row.get(1)?,
        open: row.get(2)?,
        errors: row.get(3)?,
        maybe_billed: row.get(4)?,
        estimated: row.get(5)?,
        tokens_in: row.get(6)?,
        tokens_out: row.get(7)?,
        tokens_cached: row.get(8)?,
        cost_picos: 0,
    })
}
