//! One verb's transaction: the connection, the time, and what must move with the rows.
//!
//! Verbs say which units moved ([`Tx::moved`]); counts and dependants follow in [`Tx::flush`], in
//! the same transaction, once per verb and not once per unit. What may only happen when others can
//! see the change (batches that reached their end, wake-ups, the change feed) is left in [`PostCommit`]
//! for the store to do after the commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use longshore_core::batch::Sums;
use longshore_core::{Error, Result, Timestamp, UnitId, UnitState};
use longshore_postgres_address::PooledConnection;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::connect::ClockSource;
use crate::error::{Translate, damaged, translate};
use crate::finish;
use crate::notifier::FeedEntry;
use crate::row::{code, to_json, value};
use crate::streams::{Stream, StreamCache};
use crate::typed_params::{Param, typed};

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It does.
    Durable,
    /// It does not: claims, starts and beats, which mean nothing once their session is gone.
    Relaxed,
    /// There is nothing to commit.
    Read,
}

/// Should this process vanish (or the network), the server must not keep its locks.
const TIMEOUTS: &str = "SET LOCAL idle_in_transaction_session_timeout = '15s'; \
    SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '60s'; SET LOCAL jit = off";

/// Verbs find their rows by index, a few hundred of however many there are. The planner does not
/// know that: with the statistics of a moment ago it reads whole tables, or everything a session
/// holds, for each of them. (Forbidding sequential scans would not do: where one cannot be avoided
/// its penalty drowns all other differences.)
const INDEX_PLANS: &str = "SET LOCAL random_page_cost = 0.01; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// A caller's own statements are planned as anywhere else.
const DEFAULT_PLANS: &str = "SET LOCAL random_page_cost TO DEFAULT; \
    SET LOCAL enable_bitmapscan TO DEFAULT; SET LOCAL enable_hashjoin TO DEFAULT; \
    SET LOCAL enable_mergejoin TO DEFAULT";

/// One verb's transaction.
pub(crate) struct Tx<'c> {
    db: Db<'c>,
    pub(crate) now: Timestamp,
    pub(crate) streams: Arc<StreamCache>,
    pub(crate) after: PostCommit,
    /// What was done is to be taken back although the verb has an answer.
    pub(crate) abandon: bool,
    /// Streams that are there for good only if this transaction commits.
    pub(crate) new_streams: Vec<Arc<Stream>>,
    deltas: BTreeMap<i64, Delta>,
    /// Streams of which the server has counted what moved, and whether leased units were given back.
    counted: BTreeMap<i64, bool>,
    /// What checkpoints add to the sums of batches, by stream.
    sums: BTreeMap<i64, Sums>,
    ended: Vec<(UnitId, bool)>,
    final_statements: Vec<FinalStatement>,
}

/// A statement that nobody waits for: it travels with the commit.
struct FinalStatement {
    sql: &'static str,
    params: Vec<Box<dyn Param + Send>>,
}

impl FinalStatement {
    fn params(&self) -> Vec<&dyn Param> {
        self.params.iter().map(|param| -> &dyn Param { param.as_ref() }).collect()
    }
}

/// What is to be done once the transaction is committed.
#[derive(Debug, Clone, Default)]
pub(crate) struct PostCommit {
    /// Something became claimable.
    pub(crate) wake_workers: bool,
    /// Batches whose record must be looked at.
    pub(crate) batches: BTreeSet<i64>,
    /// What the change feed says.
    pub(crate) changes: BTreeSet<FeedEntry>,
    /// Rows written to `longshore_delta`.
    pub(crate) deltas: usize,
    /// A claim came upon units that others held: they may be left to us in a moment.
    pub(crate) skipped: bool,
    /// Streams of which a claim cannot tell whether others hold some of their units.
    pub(crate) rechecks: Vec<i64>,
    /// Cap keys that a caller's transaction left places under, and how many.
    pub(crate) unparks: BTreeMap<Vec<u8>, i64>,
    /// A caller's transaction left units to be looked at.
    pub(crate) outbox: bool,
}

impl PostCommit {
    /// Whether nothing is to be done: nothing moved.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            wake_workers,
            batches,
            changes,
            deltas,
            skipped: _,
            rechecks: _,
            unparks,
            outbox,
        } = self;
        let nothing = batches.is_empty() && changes.is_empty() && unparks.is_empty();
        nothing && !wake_workers && *deltas == 0 && !outbox
    }

    /// Adds another's duties.
    pub(crate) fn merge(&mut self, other: Self) {
        self.wake_workers |= other.wake_workers;
        self.batches.extend(other.batches);
        self.changes.extend(other.changes);
        self.deltas += other.deltas;
        self.skipped |= other.skipped;
        self.rechecks.extend(other.rechecks);
        for (key, units) in other.unparks {
            *self.unparks.entry(key).or_default() += units;
        }
        self.outbox |= other.outbox;
    }

    /// Announces a change.
    fn announce(&mut self, topic: &'static str, name: impl Into<String>, tenant: Option<&str>) {
        let tenant = tenant.map(str::to_owned);
        self.changes.insert(FeedEntry { topic, name: name.into(), tenant });
    }

    /// What others hear of a stream whose counts moved.
    pub(crate) fn note_stream(&mut self, streams: &StreamCache, stream: &Stream, released: bool) {
        if stream.batch_num != 0 {
            self.batches.insert(stream.batch_num);
        }
        // A place under a cap came free.
        self.wake_workers |= released && streams.may_be_capped(stream.lane);
        self.announce("queue", stream.queue.as_str(), Some(stream.tenant.as_str()));
        if let Some(batch) = &stream.batch {
            self.announce("batch", batch.as_str(), Some(stream.tenant.as_str()));
        }
    }
}

enum Db<'c> {
    /// A connection of ours. Its BEGIN travels with the first statement.
    Pooled { client: Option<Arc<PooledConnection>>, begin: Option<BeginFuture> },
    /// The caller's transaction.
    Caller(&'c tokio_postgres::Transaction<'c>),
}

type BeginFuture = BoxFuture<'static, Result<(), tokio_postgres::Error>>;

/// How a stream's counters move.
#[derive(Default)]
struct Delta {
    counts: [i64; 7],
    bytes: i64,
}

impl Tx<'static> {
    /// Begins a transaction on a connection of ours.
    pub(crate) fn begin(
        client: PooledConnection,
        durability: Durability,
        now: Timestamp,
        streams: Arc<StreamCache>,
    ) -> Self {
        let client = Arc::new(client);
        let own = Arc::clone(&client);
        let sql = match durability {
            Durability::Durable => format!("BEGIN; {TIMEOUTS}; {INDEX_PLANS}"),
            Durability::Relaxed => {
                format!("BEGIN; {TIMEOUTS}; {INDEX_PLANS}; SET LOCAL synchronous_commit = off")
            }
            Durability::Read => format!("BEGIN READ ONLY; {TIMEOUTS}"),
        };
        let begin = async move { own.batch_execute(&sql).await }.boxed();
        Self::new(Db::Pooled { client: Some(client), begin: Some(begin) }, now, streams)
    }

    /// Commits, and says what is to be done now.
    pub(crate) async fn commit(mut self) -> Result<PostCommit> {
        if self.abandon {
            self.end("ROLLBACK").await?;
            return Ok(PostCommit::default());
        }
        let more = !self.counted.is_empty() || !self.final_statements.is_empty();
        match self.prepare().await {
            Ok(None) if !more => self.end("COMMIT").await?,
            Ok(deltas_written) => self.commit_with(deltas_written).await?,
            Err(error) => {
                self.roll_back().await;
                return Err(error);
            }
        }
        for stream in std::mem::take(&mut self.new_streams) {
            self.streams.insert(stream);
        }
        Ok(std::mem::take(&mut self.after))
    }

    /// Whether anything moved, or others are to hear of something.
    pub(crate) fn has_effects(&self) -> bool {
        let counts = !self.deltas.is_empty() || !self.counted.is_empty();
        let moved = counts || !self.sums.is_empty() || !self.ended.is_empty();
        let moved = moved || !self.final_statements.is_empty();
        !self.abandon && (moved || !self.after.is_empty() || self.after.skipped)
    }

    /// Writes the last statements, if there are any, and commits in one round trip. Should one of
    /// them fail, the server takes the commit for a rollback.
    async fn commit_with(&mut self, deltas_written: Option<DeltaColumns>) -> Result<()> {
        let Db::Pooled { client, .. } = &mut self.db else { return Ok(()) };
        let own = connection(client)?;
        let final_statements = std::mem::take(&mut self.final_statements);
        let final_statements: Vec<_> =
            final_statements.iter().map(|last| (last.sql, last.params())).collect();
        let finals = final_statements.iter().map(|(sql, params)| async move {
            own.query_typed(sql, &typed(params)).await.map(|_| ())
        });
        let finals = futures_util::future::join_all(finals);
        let write = async {
            match &deltas_written {
                Some(deltas_written) => {
                    let params = deltas_written.params();
                    own.query_typed(DeltaColumns::SQL, &typed(&params)).await.map(|_| ())
                }
                None => Ok(()),
            }
        };
        let commit = own.batch_execute("COMMIT");
        // In this order, before any is answered.
        let (results, written, committed) =
            futures_util::future::join3(finals, write, commit).await;
        // Answered either way, the connection is free again.
        if committed.is_ok() {
            *client = None;
        }
        for results in results {
            results.or_translate()?;
        }
        written.or_translate()?;
        committed.map_err(commit_error)?;
        Ok(())
    }

    /// Takes everything back. A connection that cannot even do that is not used again.
    pub(crate) async fn roll_back(mut self) {
        if let Err(error) = self.end("ROLLBACK").await {
            tracing::debug!(%error, "a connection is given up");
        }
    }

    /// Ends the transaction and gives the connection back to the pool.
    async fn end(&mut self, how: &str) -> Result<()> {
        if let Db::Pooled { client, begin } = &mut self.db
            && begin.take().is_none()
            && let Some(own) = client
        {
            own.batch_execute(how).await.map_err(commit_error)?;
            // Only now: whatever is dropped with its client still inside is closed.
            *client = None;
        } else if let Db::Pooled { client, .. } = &mut self.db {
            *client = None;
        }
        Ok(())
    }
}

impl<'c> Tx<'c> {
    /// A part of the caller's own transaction.
    pub(crate) fn in_caller_transaction(
        transaction: &'c tokio_postgres::Transaction<'c>,
        now: Timestamp,
        streams: Arc<StreamCache>,
    ) -> Self {
        Self::new(Db::Caller(transaction), now, streams)
    }

    fn new(db: Db<'c>, now: Timestamp, streams: Arc<StreamCache>) -> Self {
        Self {
            db,
            now,
            streams,
            after: PostCommit::default(),
            abandon: false,
            new_streams: Vec::new(),
            deltas: BTreeMap::new(),
            counted: BTreeMap::new(),
            sums: BTreeMap::new(),
            ended: Vec::new(),
            final_statements: Vec::new(),
        }
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn query(&mut self, sql: &str, params: &[&dyn Param]) -> Result<Vec<Row>> {
        self.query_raw(sql, &typed(params)).await
    }

    /// The same with parameters that carry their types.
    pub(crate) async fn query_raw(
        &mut self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>> {
        match &mut self.db {
            Db::Caller(transaction) => transaction.query_typed(sql, params).await.or_translate(),
            Db::Pooled { client, begin } => {
                let client = connection(client)?;
                let query = client.query_typed(sql, params);
                let Some(begin) = begin.take() else { return query.await.or_translate() };
                // Both are on their way before either is answered.
                let (begun, rows) = futures_util::future::join(begin, query).await;
                begun.or_translate()?;
                rows.or_translate()
            }
        }
    }

    /// Has a statement run with the commit: its answer says nothing, unless it fails.
    pub(crate) fn pipeline_with_commit(
        &mut self,
        sql: &'static str,
        params: Vec<Box<dyn Param + Send>>,
    ) {
        self.final_statements.push(FinalStatement { sql, params });
    }

    /// Runs a statement that returns nothing; how many rows it changed.
    pub(crate) async fn execute(&mut self, sql: &str, params: &[&dyn Param]) -> Result<u64> {
        self.execute_raw(sql, &typed(params)).await
    }

    /// The same with parameters that carry their types.
    pub(crate) async fn execute_raw(
        &mut self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64> {
        self.ensure_begun().await?;
        match &self.db {
            Db::Caller(transaction) => transaction.execute_typed(sql, params).await.or_translate(),
            Db::Pooled { client, .. } => {
                connection(client)?.execute_typed(sql, params).await.or_translate()
            }
        }
    }

    /// Runs statements without parameters or answers (`SAVEPOINT`).
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<()> {
        self.ensure_begun().await?;
        match &self.db {
            Db::Caller(transaction) => transaction.batch_execute(sql).await.or_translate(),
            Db::Pooled { client, .. } => {
                connection(client)?.batch_execute(sql).await.or_translate()
            }
        }
    }

    async fn ensure_begun(&mut self) -> Result<()> {
        match &mut self.db {
            Db::Pooled { begin, .. } => match begin.take() {
                Some(begin) => begin.await.or_translate(),
                None => Ok(()),
            },
            Db::Caller(_) => Ok(()),
        }
    }

    /// Whether this is a part of the caller's own transaction, which may stay open for long.
    pub(crate) fn is_caller_transaction(&self) -> bool {
        matches!(self.db, Db::Caller(_))
    }

    /// The settings under which a caller's statements are planned, and those for ours again,
    /// whatever those statements have set (`set_config` is a function like any other). In the
    /// caller's own transaction everything is as the caller wants it.
    pub(crate) fn planner_settings(&self) -> (&'static str, String) {
        match self.db {
            Db::Pooled { .. } => {
                (DEFAULT_PLANS, format!("RESET ROLE; RESET ALL; {TIMEOUTS}; {INDEX_PLANS}"))
            }
            Db::Caller(_) => ("", String::new()),
        }
    }

    /// The time by which all processes go.
    pub(crate) async fn clock_now(&mut self, clock_source: ClockSource) -> Result<Timestamp> {
        if clock_source == ClockSource::Local {
            return Ok(self.now);
        }
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        value(&self.query_one(sql, &[]).await?, 0).map(Timestamp::from_micros)
    }

    /// A statement that returns one row.
    pub(crate) async fn query_one(&mut self, sql: &str, params: &[&dyn Param]) -> Result<Row> {
        self.query_opt(sql, params).await?.ok_or_else(|| damaged("no row where one must be"))
    }

    /// A statement that returns at most one row.
    pub(crate) async fn query_opt(
        &mut self,
        sql: &str,
        params: &[&dyn Param],
    ) -> Result<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Counts a unit with `bytes` of payload from one state to another. Bytes count while live.
    pub(crate) fn moved(
        &mut self,
        stream: i64,
        from: Option<UnitState>,
        to: Option<UnitState>,
        bytes: i64,
    ) {
        self.moved_many(stream, from, to, 1, bytes);
    }

    /// The same for `units` that have `bytes` together.
    pub(crate) fn moved_many(
        &mut self,
        stream: i64,
        from: Option<UnitState>,
        to: Option<UnitState>,
        units: i64,
        bytes: i64,
    ) {
        let delta = self.deltas.entry(stream).or_default();
        let live = |state: Option<UnitState>| state.is_some_and(|state| !state.is_final());
        if let Some(from) = from {
            delta.counts[usize::from(code(from).unsigned_abs())] -= units;
        }
        if let Some(to) = to {
            delta.counts[usize::from(code(to).unsigned_abs())] += units;
        }
        delta.bytes += bytes * (i64::from(live(to)) - i64::from(live(from)));
        self.after.wake_workers |= to == Some(UnitState::Ready);
    }

    /// Units of a stream moved, and the server's function that moved them has counted them.
    pub(crate) fn counted(&mut self, stream: i64, from: Option<UnitState>, to: UnitState) {
        let released = from == Some(UnitState::Leased);
        *self.counted.entry(stream).or_default() |= released;
        self.after.wake_workers |= to == UnitState::Ready;
    }

    /// Adds to the sums of the stream's batch.
    pub(crate) fn add_sums(&mut self, stream: i64, sums: &Sums) {
        let all = self.sums.entry(stream).or_default();
        for (name, amount) in sums {
            let sum = all.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Remembers a unit that ended, for those that wait for it.
    pub(crate) fn ended(&mut self, unit: UnitId, well: bool) {
        self.ended.push((unit, well));
    }

    /// Announces a change.
    pub(crate) fn announce(
        &mut self,
        topic: &'static str,
        name: impl Into<String>,
        tenant: Option<&str>,
    ) {
        self.after.announce(topic, name, tenant);
    }

    /// Announces that a batch's record changed, or must be looked at.
    pub(crate) fn touch_batch(&mut self, num: i64) {
        self.after.batches.insert(num);
    }

    /// Moves everything that follows from what moved. Each round may move more (a dependant), so it
    /// goes on until nothing is left.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let deltas_written = self.prepare().await?;
        for last in std::mem::take(&mut self.final_statements) {
            self.query(last.sql, &last.params()).await?;
        }
        if let Some(deltas_written) = deltas_written {
            self.query(DeltaColumns::SQL, &deltas_written.params()).await?;
        }
        Ok(())
    }

    /// Everything but the counts, which are the last to be written.
    async fn prepare(&mut self) -> Result<Option<DeltaColumns>> {
        self.release_dependants().await?;
        self.announce_streams().await?;
        self.deltas_written()
    }

    async fn release_dependants(&mut self) -> Result<()> {
        while !self.ended.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            Box::pin(finish::release_dependants(self, ended)).await?;
        }
        Ok(())
    }

    /// Notes what others are to hear of the streams whose counts moved.
    async fn announce_streams(&mut self) -> Result<()> {
        let counted = std::mem::take(&mut self.counted);
        let moved = self.deltas.keys().chain(self.sums.keys()).chain(counted.keys());
        let nums: BTreeSet<i64> = moved.copied().collect();
        if nums.is_empty() {
            return Ok(());
        }
        self.after.deltas += counted.len();
        let cache = Arc::clone(&self.streams);
        for (num, stream) in cache.by_num(self, nums).await? {
            let released = self.deltas.get(&num).is_some_and(|delta| delta.counts[3] < 0);
            let released = released || counted.get(&num) == Some(&true);
            self.after.note_stream(&cache, &stream, released);
        }
        Ok(())
    }

    /// Takes what moved, as the arrays of one statement.
    fn deltas_written(&mut self) -> Result<Option<DeltaColumns>> {
        let (deltas, sums) = (std::mem::take(&mut self.deltas), std::mem::take(&mut self.sums));
        let nums: BTreeSet<i64> = deltas.keys().chain(sums.keys()).copied().collect();
        if nums.is_empty() {
            return Ok(None);
        }
        let mut deltas_written = DeltaColumns::default();
        let none = Delta::default();
        for num in &nums {
            let delta = deltas.get(num).unwrap_or(&none);
            for (column, count) in deltas_written.counts.iter_mut().zip(delta.counts) {
                column.push(count);
            }
            deltas_written.counts[7].push(delta.bytes);
            deltas_written.sums.push(sums.get(num).map(to_json).transpose()?);
        }
        self.after.deltas += nums.len();
        deltas_written.streams = nums.into_iter().collect();
        Ok(Some(deltas_written))
    }
}

/// Rows for `longshore_delta`, one array per column.
#[derive(Default)]
struct DeltaColumns {
    streams: Vec<i64>,
    /// The seven states, then bytes.
    counts: [Vec<i64>; 8],
    sums: Vec<Option<String>>,
}

impl DeltaColumns {
    const SQL: &'static str = "INSERT INTO longshore_delta (stream, blocked, scheduled, ready,
        leased, done, failed, cancelled, bytes, sums)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

    fn params(&self) -> [&dyn Param; 10] {
        let [blocked, scheduled, ready, leased, done, failed, cancelled, bytes] = &self.counts;
        let counts = [blocked, scheduled, ready, leased, done, failed, cancelled, bytes];
        let mut params: [&dyn Param; 10] = [&self.streams; 10];
        for (param, column) in params[1..9].iter_mut().zip(counts) {
            *param = column;
        }
        params[9] = &self.sums;
        params
    }
}

impl Drop for Tx<'_> {
    /// Dropped in the middle (an error on the way, a caller that gave up): nobody knows what the
    /// connection is doing, so it is closed, which rolls back.
    fn drop(&mut self) {
        if let Db::Pooled { client, begin } = &mut self.db {
            let untouched = begin.take().is_some();
            if let Some(client) = client.take().and_then(Arc::into_inner)
                && !untouched
            {
                drop(PooledConnection::take(client));
            }
        }
    }
}

/// What a commit comes to that cannot stay: a deferred constraint that an effect broke. It is the
/// caller's, and the same again would break it again.
fn commit_error(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(server) if server.code().code().starts_with("23") => {
            Error::Invalid(format!("refused at the commit: {}", server.message()))
        }
        _ => translate(error),
    }
}

fn connection(client: &Option<Arc<PooledConnection>>) -> Result<&Arc<PooledConnection>> {
    client.as_ref().ok_or_else(|| Error::unavailable("the transaction has ended"))
}
