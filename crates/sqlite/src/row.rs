//! Rows of the driver, in the form that `longshore_core::sql_row` reads.

use std::sync::Arc;

use longshore_core::sql_row::{SqlRow, UnitNames};
use longshore_core::{BatchId, Kind, Policy, QueueName, Result, SessionId, TenantId, Unit};
use rusqlite::Row;

use crate::error::{Translate, damaged};

pub(crate) use longshore_core::sql_encoding::{
    READY_ALONE, READY_CAPPED, UnitAttributes, decode_state, entry_code, flag, flags, state_code, state_codes,
};
pub(crate) use longshore_core::sql_row::{UnitParts, to_json};

/// The columns of [`UnitParts`], of table `u`. A checkpoint is in the overflow table.
pub(crate) const PART_COLUMNS: &str = "u.failure, u.progress, u.payload, NULL, u.result";

/// The columns of a unit that decisions need.
pub(crate) type UnitRow = longshore_core::sql_row::UnitRow<String>;

/// A row of the driver.
pub(crate) struct Columns<'r, 's>(pub(crate) &'r Row<'s>);

impl SqlRow for Columns<'_, '_> {
    type Key = String;

    fn int(&self, at: usize) -> Result<Option<i64>> {
        self.0.get(at).or_translate()
    }

    fn text(&self, at: usize) -> Result<Option<&str>> {
        self.0.get_ref(at).or_translate()?.as_str_or_null().map_err(damaged)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>> {
        self.0.get_ref(at).or_translate()?.as_blob_or_null().map_err(damaged)
    }

    fn id(&self, at: usize) -> Result<Option<[u8; 16]>> {
        self.0.get(at).or_translate()
    }

    fn key(&self, at: usize) -> Result<Option<String>> {
        self.0.get(at).or_translate()
    }
}

/// What a stream's units share. Shared by `Arc`, so that a claim of thousands copies no names.
#[derive(Debug, Clone)]
pub(crate) struct StreamNames {
    pub(crate) tenant: TenantId,
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) batch: Option<BatchId>,
    /// The policy of units with [`flag::STREAM_POLICY`].
    pub(crate) policy: Option<Policy>,
}

/// Builds a unit from its columns.
pub(crate) fn unit(
    row: UnitRow,
    parts: UnitParts,
    names: &Arc<StreamNames>,
    session: Option<SessionId>,
) -> Result<Unit> {
    let StreamNames { tenant, queue, kind, batch, policy } = &**names;
    let shares_policy = row.has(flag::STREAM_POLICY);
    let unit = row.into_unit(parts, UnitNames { tenant, queue, kind, batch: batch.as_ref() }, session)?;
    Ok(if shares_policy { Unit { policy: policy.clone(), ..unit } } else { unit })
}

/// Parses a stream's policy.
pub(crate) fn parse_policy(text: Option<&str>) -> Result<Option<Policy>> {
    text.map(serde_json::from_str).transpose().map_err(damaged)
}
