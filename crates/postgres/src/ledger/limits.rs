//! Token buckets shared by all processes. `bucket::draw` decides, on locked rows. Two round trips:
//! the levels are written with the commit.

use std::collections::{BTreeMap, BTreeSet};

use longshore_accounts::token_bucket::{BucketLevel, draw as decide};
use longshore_accounts::{BucketRequest, DrawResult};
use longshore_core::{Result, Timestamp};

use crate::connect::ClockSource;
use crate::row::value;
use crate::tx::Tx;
use crate::typed_params::replace_nul;

/// Draws from buckets, in the order of the list, by the server's clock unless a test sets the time.
pub(crate) async fn draw(tx: &mut Tx<'_>, draws: &[BucketRequest]) -> Result<Vec<DrawResult>> {
    for draw in draws {
        draw.check()?;
    }
    let (mut levels, now) = lock(tx, draws).await?;
    let known: BTreeSet<String> = levels.keys().cloned().collect();
    let mut drawn = Vec::with_capacity(draws.len());
    for draw in draws {
        let name = replace_nul(&draw.bucket);
        let (got, level) = decide(levels.get(&name).copied(), now, draw);
        levels.insert(name, level);
        drawn.push(got);
    }
    write(tx, levels, known);
    Ok(drawn)
}

/// Locks existing buckets in the order of their names, and returns their levels and the time.
async fn lock(
    tx: &mut Tx<'_>,
    draws: &[BucketRequest],
) -> Result<(BTreeMap<String, BucketLevel>, Timestamp)> {
    let names: BTreeSet<String> = draws.iter().map(|draw| replace_nul(&draw.bucket)).collect();
    let names: Vec<String> = names.into_iter().collect();
    let rows = tx
        .query(
            "WITH kept AS MATERIALIZED (
               SELECT b.name, b.level, b.updated_at FROM longshore_token_bucket b WHERE b.name =
               ANY($1)
               ORDER BY b.name FOR UPDATE)
             SELECT k.name, k.level, k.updated_at,
               (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
             FROM (SELECT 1) one LEFT JOIN kept k ON true",
            &[&names],
        )
        .await?;
    let (mut levels, mut now) = (BTreeMap::new(), Timestamp::ZERO);
    for row in &rows {
        now = now.max(Timestamp::from_micros(value(row, 3)?));
        if let Some(name) = value(row, 0)? {
            let at = Timestamp::from_micros(value(row, 2)?);
            levels.insert(name, BucketLevel { level: value(row, 1)?, at });
        }
    }
    Ok((levels, if tx.clock_source == ClockSource::Local { tx.now } else { now }))
}

/// Writes the levels with the commit. `known` buckets are locked; the others are new.
fn write(tx: &mut Tx<'_>, all: BTreeMap<String, BucketLevel>, known: BTreeSet<String>) {
    let (mut names, mut levels, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (name, level) in all {
        names.push(name);
        levels.push(level.level);
        times.push(level.at.as_micros());
    }
    let known: Vec<String> = known.into_iter().collect();
    tx.pipeline_with_commit(
        "SELECT longshore_write_buckets($1, $2, $3, $4)",
        vec![Box::new(names), Box::new(levels), Box::new(times), Box::new(known)],
    );
}
