//! What an operation collects of moved units, and how it is written: counts, sums, dependants and
//! entries of the change feed, once per operation instead of once per unit.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::admission::ROW_BYTES;
use longshore_core::batch::Sums;
use longshore_core::{Result, UnitId, UnitState};

use super::Tx;
use crate::finish;
use crate::row::{state_code, to_json};
use crate::typed_params::SqlParam;

/// Changes of a stream's counters.
#[derive(Default)]
pub(super) struct CounterDelta {
    counts: [i64; 7],
    bytes: i64,
    /// Bytes of new units, with [`ROW_BYTES`] each.
    stored: i64,
}

impl Tx<'_> {
    /// Counts a unit with `bytes` of payload from one state to another. Bytes count while the unit
    /// is live.
    pub(crate) fn count_transition(
        &mut self,
        stream: i64,
        from: Option<UnitState>,
        to: Option<UnitState>,
        bytes: i64,
    ) {
        self.count_transitions(stream, from, to, 1, bytes);
    }

    /// Counts `units` with `bytes` of payload in total from one state to another.
    pub(crate) fn count_transitions(
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
            delta.counts[usize::from(state_code(from))] -= units;
        }
        if let Some(to) = to {
            delta.counts[usize::from(state_code(to))] += units;
        }
        delta.bytes += bytes * (i64::from(live(to)) - i64::from(live(from)));
        if from.is_none() {
            delta.stored += bytes + units * ROW_BYTES.cast_signed();
        }
        self.after.wake_workers |= to == Some(UnitState::Ready);
    }

    /// Records that a server function moved units of a stream and updated its counts.
    pub(crate) fn note_counted(&mut self, stream: i64, from: Option<UnitState>, to: UnitState) {
        let released = from == Some(UnitState::Leased);
        *self.counted.entry(stream).or_default() |= released;
        self.after.wake_workers |= to == UnitState::Ready;
    }

    /// Whether this transaction moved units of a stream.
    pub(crate) fn has_counted(&self, stream: i64) -> bool {
        self.deltas.contains_key(&stream) || self.counted.contains_key(&stream)
    }

    /// Adds to the sums of the stream's batch.
    pub(crate) fn add_sums(&mut self, stream: i64, sums: &Sums) {
        let all = self.sums.entry(stream).or_default();
        for (name, amount) in sums {
            let sum = all.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Records that a unit ended, so that [`Self::flush`] releases its dependants.
    pub(crate) fn note_ended(&mut self, unit: UnitId, well: bool) {
        self.ended.push((unit, well));
    }

    /// Adds an entry to the change feed.
    pub(crate) fn announce(&mut self, topic: &'static str, name: impl Into<String>, tenant: Option<&str>) {
        self.after.announce(topic, name, tenant);
    }

    /// Records that a batch's record or counters changed.
    pub(crate) fn touch_batch(&mut self, num: i64) {
        self.after.batches.insert(num);
    }

    /// Releases dependants and writes counts. A released dependant may end and release more, so
    /// this repeats until none is left.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let columns = self.prepare().await?;
        for last in std::mem::take(&mut self.final_statements) {
            self.query(last.sql, &last.params()).await?;
        }
        if let Some(columns) = columns {
            self.query(DeltaColumns::SQL, &columns.params()).await?;
        }
        Ok(())
    }

    /// Does everything except writing the counts, which are written last.
    pub(super) async fn prepare(&mut self) -> Result<Option<DeltaColumns>> {
        self.release_dependants().await?;
        self.announce_streams().await?;
        self.take_deltas()
    }

    async fn release_dependants(&mut self) -> Result<()> {
        while !self.ended.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            Box::pin(finish::release_dependants(self, ended)).await?;
        }
        Ok(())
    }

    /// Announces the streams with changed counts.
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

    /// Takes the collected deltas as the columns of one statement.
    fn take_deltas(&mut self) -> Result<Option<DeltaColumns>> {
        let (deltas, sums) = (std::mem::take(&mut self.deltas), std::mem::take(&mut self.sums));
        let nums: BTreeSet<i64> = deltas.keys().chain(sums.keys()).copied().collect();
        if nums.is_empty() {
            return Ok(None);
        }
        let mut columns = DeltaColumns::default();
        let none = CounterDelta::default();
        for num in &nums {
            let delta = deltas.get(num).unwrap_or(&none);
            for (column, count) in columns.counts.iter_mut().zip(delta.counts) {
                column.push(count);
            }
            columns.counts[7].push(delta.bytes);
            columns.counts[8].push(delta.stored);
            columns.sums.push(sums.get(num).map(to_json).transpose()?);
        }
        self.after.deltas += nums.len();
        columns.streams = nums.into_iter().collect();
        Ok(Some(columns))
    }
}

/// Rows for `longshore_stream_delta`, one array per column.
#[derive(Default)]
pub(super) struct DeltaColumns {
    streams: Vec<i64>,
    /// The seven states, then live and stored bytes.
    counts: [Vec<i64>; 9],
    sums: Vec<Option<String>>,
}

impl DeltaColumns {
    pub(super) const SQL: &'static str = "INSERT INTO longshore_stream_delta (stream, blocked, scheduled,
                               ready,
        leased, done, failed, cancelled, bytes, stored_bytes, sums)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

    pub(super) fn params(&self) -> [&dyn SqlParam; 11] {
        let mut params: [&dyn SqlParam; 11] = [&self.streams; 11];
        for (param, column) in params[1..10].iter_mut().zip(&self.counts) {
            *param = column;
        }
        params[10] = &self.sums;
        params
    }
}
