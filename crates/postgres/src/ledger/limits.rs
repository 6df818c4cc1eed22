//! Token buckets, shared by all processes: `bucket::draw` decides, on rows that are locked for it.

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::ledger::bucket::{Level, draw as decide};
use longshore_core::ledger::{Draw, Drawn};
use longshore_core::{Result, Timestamp};

use crate::connect::Terms;
use crate::error::collision;
use crate::row::value;
use crate::tx::Tx;

/// Draws from buckets, in the order of the list. By the server's clock, unless a test moves one.
pub(crate) async fn draw(tx: &mut Tx<'_>, draws: &[Draw], terms: Terms) -> Result<Vec<Drawn>> {
    for draw in draws {
        draw.check()?;
    }
    let (mut levels, now) = lock(tx, draws, terms).await?;
    let known: BTreeSet<String> = levels.keys().cloned().collect();
    let mut drawn = Vec::with_capacity(draws.len());
    for draw in draws {
        let name = crate::param::words(&draw.bucket);
        let (got, level) = decide(levels.get(&name).copied(), now, draw);
        levels.insert(name, level);
        drawn.push(got);
    }
    write(tx, &levels, &known).await?;
    Ok(drawn)
}

/// Locks the buckets that there are, in the order of their names, and says what time it is then.
async fn lock(
    tx: &mut Tx<'_>,
    draws: &[Draw],
    terms: Terms,
) -> Result<(BTreeMap<String, Level>, Timestamp)> {
    let names: BTreeSet<String> =
        draws.iter().map(|draw| crate::param::words(&draw.bucket)).collect();
    let names: Vec<String> = names.into_iter().collect();
    let rows = tx
        .query(
            "WITH kept AS MATERIALIZED (
               SELECT b.name, b.level, b.at FROM longshore_bucket b WHERE b.name = ANY($1)
               ORDER BY b.name FOR UPDATE)
             SELECT k.name, k.level, k.at,
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
            levels.insert(name, Level { level: value(row, 1)?, at });
        }
    }
    Ok((levels, if terms == Terms::Own { tx.now } else { now }))
}

/// Writes the levels: those of `known` buckets are locked, the others are new.
async fn write(
    tx: &mut Tx<'_>,
    all: &BTreeMap<String, Level>,
    known: &BTreeSet<String>,
) -> Result<()> {
    let (mut names, mut levels, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (name, level) in all {
        names.push(name.as_str());
        levels.push(level.level);
        times.push(level.at.as_micros());
    }
    let rows = tx
        .query_one(
            "WITH given AS (SELECT * FROM unnest($1, $2, $3) AS g (name, level, at)),
             changed AS (
               UPDATE longshore_bucket b SET level = g.level, at = g.at FROM given g
               WHERE b.name = g.name AND b.name = ANY($4) RETURNING 1),
             added AS (
               INSERT INTO longshore_bucket (name, level, at)
               SELECT g.name, g.level, g.at FROM given g WHERE g.name <> ALL($4)
               ORDER BY g.name ON CONFLICT DO NOTHING RETURNING 1)
             SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM added)",
            &[&names, &levels, &times, &known.iter().map(String::as_str).collect::<Vec<_>>()],
        )
        .await?;
    // Another was the first to draw from one of them: it is not full.
    if usize::try_from(value::<i64>(&rows, 0)?).ok() != Some(names.len()) {
        return Err(collision());
    }
    Ok(())
}
