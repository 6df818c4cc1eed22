//! The ledger: profiles, keys, calls and their costs, limits, budgets, reply queues.
//!
//! Calls do not contend for a row of their tenant: what they reserve and spend is written as delta
//! rows (`longshore_monthly_spend_delta`), which are rolled up with those of the streams. Only for a tenant with
//! a budget are admissions decided one after the other.

pub(crate) mod admission;
pub(crate) mod budgets;
mod call_row;
pub(crate) mod calls;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod profiles;
pub(crate) mod provider_batches;
pub(crate) mod reply_queues;
pub(crate) mod tokens;
pub(crate) mod usage;

use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, TenantId};
use tokio_postgres::Row;

use crate::row::readable;

/// Fails for a tenant outside the scope as if it did not exist.
fn check_scope(scope: &Scope, tenant: &TenantId) -> Result<()> {
    match scope.covers(tenant) {
        true => Ok(()),
        false => Err(Error::not_found("tenant", tenant)),
    }
}

/// Builds a page from rows that were selected with a limit of `limit + 1`.
fn page<T>(
    rows: &[Row],
    limit: u32,
    what: &str,
    read: impl Fn(&Row) -> Result<T>,
    cursor: impl Fn(&T) -> String,
) -> Result<Page<T>> {
    let here = &rows[..rows.len().min(limit as usize)];
    let last = here.last().filter(|_| rows.len() > here.len());
    let next = last.map(|row| read(row).map(|last| cursor(&last))).transpose()?;
    let items = here.iter().filter_map(|row| readable(what, read(row))).collect();
    Ok(Page { items, next })
}
