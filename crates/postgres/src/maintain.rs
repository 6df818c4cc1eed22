//! Upkeep: dead sessions, due units, batches that a crash left behind. Each verb does a bounded
//! amount. What removes old records is in `prune`.
//!
//! An idle store costs one statement per round: it tells which parts have anything to do.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore_core::machine::{Event, next};
use longshore_core::stall::Dead;
use longshore_core::store::{Promoted, Reclaimed};
use longshore_core::{Policy, Result, SessionId, Timestamp};

use crate::connect::Terms;
use crate::finish::{Change, apply, unpark};
use crate::fold;
use crate::param::{Param, session_uuid};
use crate::row::{Spec, UnitRow, count, flag, value};
use crate::session::{self, Leaving};
use crate::starts;
use crate::tx::Tx;
use crate::untold;

/// Ends one dead session, if its beat is still what the watcher saw. A beat that comes just now
/// waits for us, and learns that its session is gone.
pub(crate) async fn reclaim(tx: &mut Tx<'_>, dead: Dead) -> Result<Reclaimed> {
    let still = tx
        .query_opt(
            "SELECT 1 FROM longshore_session WHERE id = $1 AND beats = $2 FOR UPDATE",
            &[&session_uuid(dead.session), &dead.beats.cast_signed()],
        )
        .await?;
    if still.is_none() {
        return Ok(Reclaimed::default());
    }
    let (rescued, failed) = session::end(tx, dead.session, Leaving::Lost).await?;
    Ok(Reclaimed { sessions: 1, rescued, failed })
}

/// What upkeep remembers from round to round.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<Round>);

#[derive(Debug, Default)]
struct Round {
    /// The last cap key that was looked at.
    cap_key: Vec<u8>,
    /// When batches were last looked at that a crash may have left behind.
    batches: Option<Instant>,
    /// What the last round saw, if it had nothing to do.
    quiet: Option<(Quiet, News, Instant)>,
}

/// How much had happened, here and as far as others tell: as long as it stays the same, nothing has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct News {
    /// Commits of this process that moved anything.
    pub(crate) moves: u64,
    /// Notices of changes.
    pub(crate) notices: u64,
}

/// A store in which nothing is to be promoted before one of these times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quiet {
    /// When the next scheduled unit is due, if any is.
    pub(crate) next_due: Option<Timestamp>,
    next_deadline: Option<Timestamp>,
    /// How long it was then until the next schedule fires, if any does, by the server's clock.
    fires_in: Option<Duration>,
}

/// How often batches are looked at that a crash may have left behind.
const MAKE_GOOD: Duration = Duration::from_secs(5);
/// Cap keys looked at in one round.
const KEYS: i64 = 1000;

impl Rounds {
    fn with<T>(&self, change: impl FnOnce(&mut Round) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Remembers what a round saw that began with `news`.
    pub(crate) fn saw(&self, quiet: Option<Quiet>, news: News) {
        self.with(|round| round.quiet = quiet.map(|quiet| (quiet, news, Instant::now())));
    }

    /// What the last round saw, if it is no older than `age` and nothing has happened since.
    pub(crate) fn quiet(&self, news: News, age: Duration) -> Option<Quiet> {
        let (quiet, then, at) = self.with(|round| round.quiet)?;
        (then == news && at.elapsed() <= age).then_some(quiet)
    }

    /// In how long the next schedule fires, if the last look tells and none is due. Goes by the time
    /// that has passed since, not by this process's clock, which may be set wrongly.
    pub(crate) fn fires_in(&self, news: News, age: Duration) -> Option<Option<Duration>> {
        let (quiet, then, at) = self.with(|round| round.quiet)?;
        let passed = at.elapsed();
        if then != news || passed > age {
            return None;
        }
        match quiet.fires_in {
            Some(wait) => wait.checked_sub(passed).filter(|left| !left.is_zero()).map(Some),
            None => Some(None),
        }
    }

    fn time_to_make_good(&self) -> bool {
        let now = Instant::now();
        self.with(|round| {
            let due = round.batches.is_none_or(|last| now.duration_since(last) >= MAKE_GOOD);
            if due {
                round.batches = Some(now);
            }
            due
        })
    }
}

impl Quiet {
    /// Whether nothing is due yet.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        [self.next_due, self.next_deadline].iter().flatten().all(|at| *at > now)
    }
}

/// Makes due units ready, fails expired ones, cancels those of batches given up; folds counts.
/// Says too if there was nothing to do.
pub(crate) async fn promote(
    tx: &mut Tx<'_>,
    limit: u32,
    rounds: &Rounds,
) -> Result<(Promoted, Option<Quiet>)> {
    let (now, most) = (tx.now.as_micros(), i64::from(limit));
    let todo = Todo::look(tx).await?;
    if todo.untold {
        untold::tell(tx).await?;
    }
    if todo.fold {
        for batch in fold::fold(tx).await? {
            tx.touch_batch(batch);
        }
    }
    let mut promoted = Promoted::default();
    if todo.due {
        promoted.due = step_all(tx, DUE, &[&now, &most], &Event::Due).await?;
    }
    if todo.expired {
        promoted.expired = step_all(tx, EXPIRED, &[&now, &most], &Event::Expired).await?;
    }
    if todo.given_up {
        promoted.swept = sweep(tx, limit).await?;
    }
    if todo.ended && rounds.time_to_make_good() {
        touch_ended(tx).await?;
    }
    if todo.parked {
        free_parked(tx, rounds).await?;
    }
    let long_log = todo.starts && starts::tidy(tx).await?;
    let Promoted { due, expired, swept, .. } = promoted;
    promoted.more =
        long_log || [due, expired, swept].iter().any(|count| *count >= u64::from(limit));
    Ok((promoted, todo.is_nothing().then_some(todo.quiet)))
}

/// Looks whether there is anything to promote, for one who is at it anyway. Batches that a crash
/// left behind are for a round of promotion to see to.
pub(crate) async fn look(tx: &mut Tx<'_>) -> Result<Option<Quiet>> {
    let todo = Todo::look(tx).await?;
    Ok((todo.is_nothing() && !todo.ended).then_some(todo.quiet))
}

/// Which parts of a promotion have anything to do.
struct Todo {
    fold: bool,
    due: bool,
    expired: bool,
    given_up: bool,
    ended: bool,
    parked: bool,
    starts: bool,
    untold: bool,
    quiet: Quiet,
}

impl Todo {
    async fn look(tx: &mut Tx<'_>) -> Result<Self> {
        let row = tx
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM longshore_delta)
                   OR EXISTS (SELECT 1 FROM longshore_spend),
                 (SELECT place FROM longshore_unit WHERE state = 1 ORDER BY place LIMIT 1),
                 (SELECT deadline FROM longshore_unit WHERE deadline IS NOT NULL
                   AND state IN (0, 1, 2, 7, 8) ORDER BY deadline LIMIT 1),
                 EXISTS (SELECT 1 FROM longshore_batch WHERE completed_at IS NULL
                   AND status IN ('failed', 'cancelled')),
                 EXISTS (SELECT 1 FROM longshore_batch WHERE completed_at IS NULL
                   AND (sealed OR status IN ('failed', 'cancelled'))),
                 EXISTS (SELECT 1 FROM longshore_unit WHERE cap_key IS NOT NULL
                   AND state IN (3, 7) AND state = 7),
                 EXISTS (SELECT 1 FROM longshore_start),
                 EXISTS (SELECT 1 FROM longshore_untold),
                 (SELECT min(next_fire) FROM longshore_schedule
                   WHERE NOT paused AND next_fire IS NOT NULL)
                   - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
                &[],
            )
            .await?;
        let time = |at| -> Result<Option<Timestamp>> {
            Ok(value::<Option<i64>>(&row, at)?.map(Timestamp::from_micros))
        };
        let fires_in = value::<Option<i64>>(&row, 8)?;
        let fires_in = fires_in.map(|left| Duration::from_micros(left.try_into().unwrap_or(0)));
        let is_past = |time: Option<Timestamp>| time.is_some_and(|time| time <= tx.now);
        let quiet = Quiet { next_due: time(1)?, next_deadline: time(2)?, fires_in };
        Ok(Self {
            fold: value(&row, 0)?,
            due: is_past(quiet.next_due),
            expired: is_past(quiet.next_deadline),
            given_up: value(&row, 3)?,
            ended: value(&row, 4)?,
            parked: value(&row, 5)?,
            starts: value(&row, 6)?,
            untold: value(&row, 7)?,
            quiet,
        })
    }

    /// Whether there is nothing to do at once. Batches that a crash left behind can wait.
    fn is_nothing(&self) -> bool {
        let Self { fold, due, expired, given_up, parked, starts, untold, .. } = *self;
        !(fold || due || expired || given_up || parked || starts || untold)
    }
}

// Whoever holds a unit is changing it just now: the next round sees what became of it.
const DUE: &str = "u.state = 1 AND u.place <= $1 ORDER BY u.place LIMIT $2 FOR UPDATE SKIP LOCKED";

const EXPIRED: &str = "u.deadline IS NOT NULL AND u.state IN (0, 1, 2, 7, 8) AND u.deadline <= $1
    ORDER BY u.deadline LIMIT $2 FOR UPDATE SKIP LOCKED";

// Two conditions for two indexes.
const GIVEN_UP: [&str; 2] = [
    "u.stream = ANY($1) AND u.state = 2 LIMIT $2 FOR UPDATE SKIP LOCKED",
    "u.stream = ANY($1) AND u.state IN (0, 1, 7, 8) LIMIT $2 FOR UPDATE SKIP LOCKED",
];

/// Takes all units that `which` selects one step on.
async fn step_all(
    tx: &mut Tx<'_>,
    which: &str,
    params: &[&dyn Param],
    event: &Event<'_>,
) -> Result<u64> {
    let sql = format!("SELECT {} FROM longshore_unit u WHERE {which}", UnitRow::COLUMNS);
    let mut changes = Vec::new();
    for row in tx.query(&sql, params).await? {
        let row = UnitRow::read(&row)?;
        let step = next(&row.head()?, event, &Policy::default(), tx.now)?;
        changes.push(Change::step(row, step));
    }
    let count = changes.len() as u64;
    apply(tx, changes).await?;
    Ok(count)
}

/// Cancels waiting units of batches that were given up, and asks running ones to stop.
pub(crate) async fn sweep(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    let streams = given_up_streams(tx).await?;
    if streams.is_empty() {
        return Ok(0);
    }
    tx.execute(
        "UPDATE longshore_unit SET flags = flags | $2 WHERE id IN (SELECT id FROM longshore_unit
         WHERE session IS NOT NULL AND flags & $2 = 0 AND stream = ANY($1)
         FOR UPDATE SKIP LOCKED)",
        &[&streams, &flag::CANCEL],
    )
    .await?;
    let mut swept = 0;
    for which in GIVEN_UP {
        let left = i64::from(limit) - i64::try_from(swept).unwrap_or(0);
        if left > 0 {
            swept += step_all(tx, which, &[&streams, &left], &Event::Cancel).await?;
        }
    }
    Ok(swept)
}

/// The streams of batches that were given up and have units that have not ended.
async fn given_up_streams(tx: &mut Tx<'_>) -> Result<Vec<i64>> {
    let rows = tx
        .query(
            "SELECT s.num FROM longshore_batch b JOIN longshore_stream s
             ON s.batch = b.num AND s.batch <> 0
             WHERE b.completed_at IS NULL AND b.status IN ('failed', 'cancelled')",
            &[],
        )
        .await?;
    rows.iter().map(|row| value(row, 0)).collect()
}

/// Has batches looked at whose last unit has ended but which do not know: whoever ended it died
/// between that commit and the next.
pub(crate) async fn touch_ended(tx: &mut Tx<'_>) -> Result<()> {
    let rows = tx
        .query(
            "WITH unended AS MATERIALIZED (
               SELECT b.num FROM longshore_batch b WHERE b.completed_at IS NULL
               AND (b.sealed OR b.status IN ('failed', 'cancelled'))),
             live (batch, unended, units) AS (
               SELECT num, true, 0::bigint FROM unended
               UNION ALL SELECT s.batch, false, s.blocked + s.scheduled + s.ready + s.leased
               FROM unended b JOIN longshore_stream s ON s.batch = b.num AND s.batch <> 0
               UNION ALL SELECT s.batch, false, d.blocked + d.scheduled + d.ready + d.leased
               FROM longshore_delta d JOIN longshore_stream s ON s.num = d.stream
               AND s.batch <> 0)
             SELECT batch FROM live GROUP BY batch HAVING bool_or(unended) AND sum(units) = 0",
            &[],
        )
        .await?;
    for row in &rows {
        tx.touch_batch(value(row, 0)?);
    }
    Ok(())
}

/// Units parked behind a cap that is not reached any more. Leaving units let the next one back in;
/// this catches one whose predecessor was itself hidden (its batch paused) when it did, or left in a
/// caller's transaction of which nobody told us. From key to key by the index, however many units
/// are parked behind each, and some keys per round.
async fn free_parked(tx: &mut Tx<'_>, rounds: &Rounds) -> Result<()> {
    let after = rounds.with(|round| round.cap_key.clone());
    let rows = tx
        .query(
            "WITH RECURSIVE key (at, name) AS (
               SELECT 0::bigint, $1 UNION ALL
               SELECT k.at + 1, (SELECT u.cap_key FROM longshore_unit u WHERE u.cap_key > k.name
                 AND u.cap_key IS NOT NULL AND u.state IN (3, 7) ORDER BY u.cap_key LIMIT 1)
               FROM key k WHERE k.name IS NOT NULL AND k.at < $2)
             SELECT k.name, (SELECT count(*) FROM longshore_unit l WHERE l.cap_key = k.name
               AND l.state = 3 AND l.state IN (3, 7)),
               (SELECT p.spec FROM longshore_unit p WHERE p.cap_key = k.name
               AND p.state = 7 AND p.state IN (3, 7) ORDER BY p.place LIMIT 1)
             FROM key k WHERE k.name IS NOT NULL AND k.at > 0 ORDER BY k.at",
            &[&after, &KEYS],
        )
        .await?;
    let mut free: Vec<Vec<u8>> = Vec::new();
    let mut last = Vec::new();
    for row in &rows {
        last = value(row, 0)?;
        let (leased, spec): (u32, _) = (count(row, 1)?, value::<Option<&str>>(row, 2)?);
        let Some(spec) = spec else { continue };
        if Spec::parse(Some(spec))?.cap.is_none_or(|cap| leased < cap.limit) {
            free.push(last.clone());
        }
    }
    let through = rows.len() < usize::try_from(KEYS).unwrap_or(0);
    rounds.with(|round| round.cap_key = if through { Vec::new() } else { last });
    unpark(tx, free.iter().map(Vec::as_slice)).await
}

/// When the next scheduled unit is due.
pub(crate) async fn next_due(tx: &mut Tx<'_>) -> Result<Option<Duration>> {
    let sql = "SELECT place FROM longshore_unit WHERE state = 1 ORDER BY place LIMIT 1";
    let Some(row) = tx.query_opt(sql, &[]).await? else { return Ok(None) };
    Ok(Some(Timestamp::from_micros(value(&row, 0)?).since(tx.now)))
}

/// Claims or renews the leadership of a role. Who does not lead only reads.
pub(crate) async fn lead(
    tx: &mut Tx<'_>,
    role: &str,
    session: SessionId,
    ttl: Duration,
    terms: Terms,
) -> Result<bool> {
    let now = tx.common_time(terms).await?;
    let until = (now + ttl).as_micros();
    let (session, now) = (session_uuid(session), now.as_micros());
    // A term that ends later than one from now would is from before the clock was set back.
    let led = "SELECT 1 FROM longshore_leader WHERE role = $1 AND session <> $2 AND until > $3
        AND until <= $4";
    if tx.query_opt(led, &[&role, &session, &now, &until]).await?.is_some() {
        return Ok(false);
    }
    let won = tx
        .query_opt(
            "INSERT INTO longshore_leader AS l (role, session, until) VALUES ($1, $2, $4)
             ON CONFLICT (role) DO UPDATE SET session = excluded.session, until = excluded.until
             WHERE l.session = $2 OR l.until <= $3 OR l.until > $4 RETURNING 1",
            &[&role, &session, &now, &until],
        )
        .await?;
    Ok(won.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWS: News = News { moves: 1, notices: 1 };
    const LONG: Duration = Duration::from_secs(600);

    fn rounds(fires_in: Option<Duration>) -> Rounds {
        let rounds = Rounds::default();
        rounds.saw(Some(Quiet { next_due: None, next_deadline: None, fires_in }), NEWS);
        rounds
    }

    #[test]
    fn when_the_next_schedule_fires_is_known_until_something_happens() {
        assert_eq!(rounds(None).fires_in(NEWS, LONG), Some(None), "none does");
        let rounds = rounds(Some(LONG));
        let left = rounds.fires_in(NEWS, LONG).flatten();
        assert!(left.is_some_and(|left| left <= LONG && !left.is_zero()));
        let more = News { notices: 2, ..NEWS };
        assert_eq!(rounds.fires_in(more, LONG), None, "others did something");
        assert_eq!(rounds.fires_in(NEWS, Duration::ZERO), None, "too old to be believed");
    }

    #[test]
    fn a_schedule_that_is_due_is_not_answered_from_memory() {
        assert_eq!(rounds(Some(Duration::ZERO)).fires_in(NEWS, LONG), None);
    }
}
