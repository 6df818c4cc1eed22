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

use crate::finish::{Change, apply, unpark};
use crate::fold;
use crate::param::{Param, session_uuid};
use crate::row::{UnitRow, flag, value};
use crate::session::{self, Leaving};
use crate::tx::Tx;

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
    let Promoted { due, expired, swept, .. } = promoted;
    promoted.more = [due, expired, swept].iter().any(|count| *count >= u64::from(limit));
    Ok((promoted, todo.is_nothing().then_some(todo.quiet)))
}

/// Which parts of a promotion have anything to do.
struct Todo {
    fold: bool,
    due: bool,
    expired: bool,
    given_up: bool,
    ended: bool,
    parked: bool,
    quiet: Quiet,
}

impl Todo {
    async fn look(tx: &mut Tx<'_>) -> Result<Self> {
        let row = tx
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM longshore_delta),
                 (SELECT place FROM longshore_unit WHERE state = 1 ORDER BY place LIMIT 1),
                 (SELECT deadline FROM longshore_unit WHERE deadline IS NOT NULL
                   AND state IN (0, 1, 2, 7, 8) ORDER BY deadline LIMIT 1),
                 EXISTS (SELECT 1 FROM longshore_batch WHERE completed_at IS NULL
                   AND status IN ('failed', 'cancelled')),
                 EXISTS (SELECT 1 FROM longshore_batch WHERE completed_at IS NULL
                   AND (sealed OR status IN ('failed', 'cancelled'))),
                 EXISTS (SELECT 1 FROM longshore_unit WHERE cap_key IS NOT NULL
                   AND state IN (3, 7) AND state = 7)",
                &[],
            )
            .await?;
        let time = |at| -> Result<Option<Timestamp>> {
            Ok(value::<Option<i64>>(&row, at)?.map(Timestamp::from_micros))
        };
        let is_past = |time: Option<Timestamp>| time.is_some_and(|time| time <= tx.now);
        let quiet = Quiet { next_due: time(1)?, next_deadline: time(2)? };
        Ok(Self {
            fold: value(&row, 0)?,
            due: is_past(quiet.next_due),
            expired: is_past(quiet.next_deadline),
            given_up: value(&row, 3)?,
            ended: value(&row, 4)?,
            parked: value(&row, 5)?,
            quiet,
        })
    }

    /// Whether there is nothing to do at once. Batches that a crash left behind can wait.
    fn is_nothing(&self) -> bool {
        !(self.fold || self.due || self.expired || self.given_up || self.parked)
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
            "SELECT b.num FROM longshore_batch b WHERE b.completed_at IS NULL
             AND (b.sealed OR b.status IN ('failed', 'cancelled'))
             AND NOT EXISTS (SELECT 1 FROM longshore_count c WHERE c.batch = b.num AND c.batch <> 0
               AND c.blocked + c.scheduled + c.ready + c.leased > 0)",
            &[],
        )
        .await?;
    for row in &rows {
        tx.touch_batch(value(row, 0)?);
    }
    Ok(())
}

/// Units parked behind a cap that nothing holds any more. Leaving units let the next one back in;
/// this catches one whose predecessor was itself hidden (its batch paused) when it did. From key to
/// key by the index, however many units are parked behind each, and some keys per round.
async fn free_parked(tx: &mut Tx<'_>, rounds: &Rounds) -> Result<()> {
    let after = rounds.with(|round| round.cap_key.clone());
    let rows = tx
        .query(
            "WITH RECURSIVE key (at, name) AS (
               SELECT 0::bigint, $1 UNION ALL
               SELECT k.at + 1, (SELECT u.cap_key FROM longshore_unit u WHERE u.cap_key > k.name
                 AND u.cap_key IS NOT NULL AND u.state IN (3, 7) ORDER BY u.cap_key LIMIT 1)
               FROM key k WHERE k.name IS NOT NULL AND k.at < $2)
             SELECT k.name, EXISTS (SELECT 1 FROM longshore_unit l WHERE l.cap_key = k.name
               AND l.state = 3 AND l.state IN (3, 7))
             FROM key k WHERE k.name IS NOT NULL AND k.at > 0 ORDER BY k.at",
            &[&after, &KEYS],
        )
        .await?;
    let mut free: Vec<Vec<u8>> = Vec::new();
    let mut last = Vec::new();
    for row in &rows {
        last = value(row, 0)?;
        if !value::<bool>(row, 1)? {
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
) -> Result<bool> {
    let (session, now) = (session_uuid(session), tx.now.as_micros());
    let until = (tx.now + ttl).as_micros();
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
