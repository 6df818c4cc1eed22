//! Units for each axis, sent through the public client.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use bench_queues::ours;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use longshore::store::SendResult;
use longshore::{
    BatchId, BatchWriter, Client, Kind, NewBatch, NewUnit, QueueName, Store, TenantId, UnitId, WhenFull,
};

use crate::axis::Axis;

/// Units per call of the client, which splits them into chunks for the store.
const UNITS_PER_CALL: usize = 10_000;

/// Batches that are written at the same time.
const CONCURRENT_BATCHES: usize = 64;

/// Sends the units of one point.
pub(crate) struct Workload {
    client: Client,
    kind: Kind,
    axis: Axis,
    point: usize,
    sent: usize,
    batches: Vec<BatchWriter>,
}

impl Workload {
    /// A workload for one point on a store.
    pub(crate) fn new(store: &Arc<dyn Store>, axis: Axis, point: usize) -> Result<Self> {
        let client = Client::new(Arc::clone(store));
        Ok(Self { client, kind: ours::noop()?, axis, point, sent: 0, batches: Vec::new() })
    }

    /// The number of units that `send` makes of `wanted`: dependencies come in whole groups.
    pub(crate) fn round_up(&self, wanted: usize) -> usize {
        match self.axis {
            Axis::Dependencies | Axis::Dependants => wanted.next_multiple_of(self.point + 1),
            Axis::Batches => wanted.next_multiple_of(self.point),
            _ => wanted,
        }
    }

    /// Sends at least `count` units and returns how many. Fails at `deadline`.
    pub(crate) async fn send(&mut self, count: usize, deadline: Instant) -> Result<usize> {
        let count = self.round_up(count);
        if self.axis == Axis::Batches {
            self.add_to_batches(count / self.point).await?;
            return Ok(count);
        }
        let end = self.sent + count;
        while self.sent < end {
            ensure!(Instant::now() < deadline, "out of time after {} units were sent", self.sent);
            let units = self.next_units(end - self.sent)?;
            self.sent += units.len();
            let results = self.client.send_many(units, WhenFull::Wait).await?;
            expect_created(&results)?;
        }
        Ok(count)
    }

    /// The next units: at most one call's, or one group.
    fn next_units(&self, most: usize) -> Result<Vec<NewUnit>> {
        let group = match self.axis {
            Axis::Dependencies | Axis::Dependants => self.point + 1,
            _ => 1,
        };
        let count = UNITS_PER_CALL.next_multiple_of(group).min(most);
        let mut units = (0..count).map(|i| self.unit(self.sent + i)).collect::<Result<Vec<NewUnit>>>()?;
        match self.axis {
            Axis::Dependencies => units.chunks_mut(group).for_each(depend_on_others),
            Axis::Dependants => units.chunks_mut(group).for_each(depend_on_first),
            _ => {}
        }
        Ok(units)
    }

    fn unit(&self, number: usize) -> Result<NewUnit> {
        let mut unit = NewUnit::new(self.kind.clone(), format!("{{\"i\":{number}}}").into_bytes());
        match self.axis {
            Axis::Tenants => unit.tenant = TenantId::new(format!("tenant-{}", number % self.point))?,
            Axis::Queues => unit.queue = QueueName::new(format!("queue-{}", number % self.point))?,
            _ => {}
        }
        Ok(unit)
    }

    /// Adds `count` units to each batch, in one call per batch and thousand units.
    async fn add_to_batches(&mut self, count: usize) -> Result<()> {
        if self.batches.is_empty() {
            let client = &self.client;
            let open = |i| async move {
                let id = BatchId::new(format!("batch-{i}"))?;
                anyhow::Ok(client.open_batch(NewBatch::new(id)).await?)
            };
            let opened = stream::iter(0..self.point).map(open).buffer_unordered(CONCURRENT_BATCHES);
            self.batches = opened.try_collect().await?;
        }
        let kind = &self.kind;
        stream::iter(self.batches.iter_mut().map(Ok))
            .try_for_each_concurrent(CONCURRENT_BATCHES, |batch| add_to_batch(batch, kind.clone(), count))
            .await
    }
}

async fn add_to_batch(batch: &mut BatchWriter, kind: Kind, count: usize) -> Result<()> {
    let mut left = count;
    let mut cursor: usize = if batch.cursor().is_empty() { 0 } else { batch.cursor().parse()? };
    while left > 0 {
        let chunk = left.min(1_000);
        let unit = |i| NewUnit::new(kind.clone(), format!("{{\"i\":{i}}}").into_bytes());
        let units = (cursor..cursor + chunk).map(unit).collect();
        cursor += chunk;
        left -= chunk;
        expect_created(&batch.add(units, cursor.to_string()).await?)?;
    }
    Ok(())
}

fn depend_on_others(group: &mut [NewUnit]) {
    if let Some((last, others)) = group.split_last_mut() {
        last.dependencies.units = others.iter().map(|unit| unit.id).collect();
    }
}

fn depend_on_first(group: &mut [NewUnit]) {
    if let Some((first, others)) = group.split_first_mut() {
        let first: UnitId = first.id;
        others.iter_mut().for_each(|unit| unit.dependencies.units = vec![first]);
    }
}

/// Fails if a unit was rejected: the figures would count units that do not exist.
fn expect_created(results: &[SendResult]) -> Result<()> {
    match results.iter().find(|result| !matches!(result, SendResult::Created(_))) {
        Some(result) => bail!("a unit was not stored: {result:?}"),
        None => Ok(()),
    }
}
