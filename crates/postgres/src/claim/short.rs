//! The short way of a claim: one statement, where nothing is to be weighed.
//!
//! One stream has something, no cap bounds it, nothing waits that must run alone, and all that is
//! found is plain: then the server can tell alone what the long way would take. As it comes out, this
//! process notes the same of it: turns, floors, and what others held.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_core::fair::share;
use longshore_core::store::{Claim, Claimed};
use longshore_core::{Error, Result};
use tokio_postgres::Row;

use super::MOST;
use super::eligible::Asked;
use super::rows::Taken;
use crate::error::damaged;
use crate::param::Param;
use crate::row::{count, small, value};
use crate::store::Shared;
use crate::streams::Stream;
use crate::turns::{Look, Shape};
use crate::tx::Aftermath;

/// Takes units, or says that the long way must be gone.
pub(crate) async fn shortly(shared: &Arc<Shared>, claim: &Arc<Claim>) -> Result<Option<Claimed>> {
    let shape = Shape::of(claim);
    let wanted = u64::from(claim.free) + u64::from(claim.ahead);
    let weighed = !claim.except.is_empty() || shared.turns.was_weighed(shape);
    if wanted == 0 || wanted > MOST || weighed {
        return Ok(None);
    }
    let look = shared.turns.floors.look(shape, Instant::now());
    if matches!(&look, Look::Known(streams) if streams.len() != 1) {
        return Ok(None);
    }
    let known = look != Look::Whole;
    let claimed = shortly_at(shared, claim, shape, look).await?;
    if known && claimed.as_ref().is_some_and(|claimed| claimed.units.is_empty()) {
        return shortly_at(shared, claim, shape, Look::Whole).await;
    }
    Ok(claimed)
}

async fn shortly_at(
    shared: &Arc<Shared>,
    claim: &Arc<Claim>,
    shape: Shape,
    look: Look,
) -> Result<Option<Claimed>> {
    let (store, claim) = (Arc::clone(shared), Arc::clone(claim));
    let errand = async move {
        let Some(answer) = ask(&store, &claim, &look).await? else {
            store.turns.note_weighed(shape, true);
            return Ok(None);
        };
        let (claimed, after) = answer.take_in(&store, &claim, shape, &look).await?;
        store.follow(after).await?;
        Ok(Some(claimed))
    };
    shared.see_to(errand).await
}

/// What the server took.
struct Answer {
    wanted: u64,
    cost: Duration,
    /// The stream that had something.
    source: Option<Source>,
    /// In the order of their ranks.
    units: Vec<Taken>,
}

struct Source {
    num: i64,
    weight: u32,
    /// Where the server began to look.
    first: Option<i64>,
}

/// The columns behind those of [`Taken`]: the first row's.
const EXTRA: usize = 23;

async fn ask(shared: &Shared, claim: &Claim, look: &Look) -> Result<Option<Answer>> {
    let floor = match look {
        Look::Known(streams) => streams.first().map(|one| shared.turns.floors.place(look, *one)),
        Look::Whole => None,
    };
    let (floor, now) = (floor.unwrap_or(i64::MIN), shared.options.clock.now().as_micros());
    let (free, wanted) = (i64::from(claim.free), i64::from(claim.free) + i64::from(claim.ahead));
    let asked = Asked::new(claim, look);
    let mut params = asked.params().to_vec();
    params.extend([&floor as &dyn Param, &wanted, &free, &now]);
    let sql = "SELECT * FROM longshore_claim_plainly($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
        $12)";
    let rows = shared.ask(sql, &params).await?;
    let (first, units) = rows.split_first().ok_or(Error::SessionGone(claim.session))?;
    Answer::read(first, units, wanted.unsigned_abs())
}

impl Answer {
    /// From the first row, and those of the units.
    fn read(first: &Row, rows: &[Row], wanted: u64) -> Result<Option<Self>> {
        if value::<i32>(first, EXTRA)? > 1 {
            return Ok(None);
        }
        let cost = Duration::from_micros(count(first, EXTRA + 5)?);
        let Some(num) = value::<Option<i64>>(first, EXTRA + 1)? else {
            return Ok(Some(Self { wanted, cost, source: None, units: Vec::new() }));
        };
        let weight = share(small(first, EXTRA + 2)?, small(first, EXTRA + 3)?);
        let source = Some(Source { num, weight, first: value(first, EXTRA + 4)? });
        let units = rows.iter().map(|row| Taken::read_from(row, 0));
        let mut units = units.collect::<Result<Vec<Taken>>>()?;
        units.sort_by_key(Taken::key);
        let plain = units.iter().all(|unit| unit.taken);
        Ok(plain.then_some(Self { wanted, cost, source, units }))
    }

    /// Notes what it says of where units are and whose turn it was, and hands the units over.
    async fn take_in(
        self,
        shared: &Shared,
        claim: &Claim,
        shape: Shape,
        look: &Look,
    ) -> Result<(Claimed, Aftermath)> {
        let (turns, mut after) = (&shared.turns, Aftermath::default());
        let found = self.units.len() as u64;
        if *look == Look::Whole {
            let streams = self.source.iter().map(|source| source.num).collect();
            turns.floors.looked(shape, self.cost, streams, Instant::now());
        }
        let Some(source) = self.source else {
            turns.leave(shape, BTreeSet::new());
            return Ok((Claimed::default(), after));
        };
        let last = self.units.last().map(|unit| unit.rank).or(source.first);
        let last = last.filter(|last| *last != i64::MIN);
        turns.floors.took(look, last.map(|last| (source.num, last)).into_iter(), self.units.len());
        let mut streams = shared.streams(BTreeSet::from([source.num])).await?;
        let missing = || damaged("a unit without its stream");
        let stream = streams.remove(&source.num).ok_or_else(missing)?;
        shared.streams.note_cap(stream.lane, false);
        turns.enter(shape, &[stream.lane]);
        turns.charge(stream.lane, source.weight, found);
        let more = (found >= self.wanted).then_some(stream.lane);
        turns.leave(shape, more.into_iter().collect());
        if *look == Look::Whole {
            // There was something a moment ago, and others have it, or some of it perhaps.
            after.skipped = found == 0;
            after.doubts.extend((found > 0 && found < self.wanted).then_some(source.num));
        }
        if found > 0 {
            after.deltas = 1;
            after.tell(&shared.streams, &stream, false);
        }
        Ok((hold(claim, &stream, self.units)?, after))
    }
}

fn hold(claim: &Claim, stream: &Stream, units: Vec<Taken>) -> Result<Claimed> {
    let held = units.into_iter().map(|unit| unit.held(claim, stream, false));
    Ok(Claimed { units: held.collect::<Result<_>>()?, ..Claimed::default() })
}
