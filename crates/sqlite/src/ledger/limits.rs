//! Token buckets: one row each, updated under the write lock.

use longshore_accounts::token_bucket::{self, BucketLevel};
use longshore_accounts::{BucketRequest, DrawResult};
use longshore_core::{Result, Timestamp};
use rusqlite::OptionalExtension;

use crate::error::Translate;
use crate::tx::Tx;

/// Takes from buckets and returns to them, in order.
pub(crate) fn draw(tx: &mut Tx<'_>, draws: &[BucketRequest]) -> Result<Vec<DrawResult>> {
    draws.iter().try_for_each(BucketRequest::check)?;
    draws.iter().map(|draw| draw_one(tx, draw)).collect()
}

fn draw_one(tx: &Tx<'_>, draw: &BucketRequest) -> Result<DrawResult> {
    let level = tx
        .db
        .prepare_cached("SELECT level, updated_at FROM longshore_token_bucket WHERE name = ?1")
        .or_translate()?
        .query_row([&draw.bucket], |row| {
            Ok(BucketLevel { level: row.get(0)?, at: Timestamp::from_micros(row.get(1)?) })
        })
        .optional()
        .or_translate()?;
    let (drawn, left) = token_bucket::draw(level, tx.now, draw);
    if level != Some(left) {
        tx.db
            .prepare_cached(
                "INSERT INTO longshore_token_bucket (name, level, updated_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name) DO UPDATE SET level = excluded.level, updated_at =
                 excluded.updated_at",
            )
            .or_translate()?
            .execute((&draw.bucket, left.level, left.at.as_micros()))
            .or_translate()?;
    }
    Ok(drawn)
}
