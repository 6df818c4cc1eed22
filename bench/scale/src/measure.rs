//! Measures one point: prepares its state, then sends and processes a sample, several times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench_queues::ours;
use longshore::Store;

use crate::axis::Axis;
use crate::curve::Point;
use crate::database::{Database, Databases};
use crate::processes;
use crate::workload::Workload;

/// Units that are sent before they are processed, while ended units are made.
const FILL_CHUNK: usize = 100_000;

/// How each point is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    /// Units per sample.
    pub(crate) units: usize,
    /// Slots of the worker, where the axis does not set them.
    pub(crate) slots: u32,
    /// Slots of each worker process.
    pub(crate) process_slots: u32,
    /// Most time for processing one sample.
    pub(crate) limit: Duration,
}

/// The state of one point: a database that holds what the axis says.
pub(crate) struct PointState {
    // Declared before the database, which is removed after its connections are closed.
    store: Arc<dyn Store>,
    workload: Workload,
    database: Database,
    axis: Axis,
    x: usize,
}

/// The units that a point's state needs before the first sample.
pub(crate) fn fill_count(axis: Axis, x: usize, sampling: Sampling) -> usize {
    match axis {
        Axis::Waiting | Axis::Finished => x,
        // Twice, so that every tenant, queue and batch has units waiting during the whole sample.
        Axis::Tenants | Axis::Queues | Axis::Batches => sampling.units.max(2 * x),
        Axis::Slots | Axis::Processes | Axis::Dependencies | Axis::Dependants => 0,
    }
}

impl PointState {
    /// Creates a database and fills it. Fails at `deadline`.
    pub(crate) async fn prepare(
        databases: &Databases,
        axis: Axis,
        x: usize,
        sampling: Sampling,
        deadline: Instant,
    ) -> Result<Self> {
        let database = databases.fresh()?;
        let store = database.open().await?;
        let workload = Workload::new(&store, axis, x)?;
        let mut state = Self { store, workload, database, axis, x };
        state.fill(fill_count(axis, x, sampling), sampling, deadline).await?;
        state.database.checkpoint()?;
        Ok(state)
    }

    async fn fill(&mut self, count: usize, sampling: Sampling, deadline: Instant) -> Result<()> {
        if self.axis != Axis::Finished {
            self.workload.send(count, deadline).await?;
            return Ok(());
        }
        let mut left = count;
        while left > 0 {
            let chunk = self.workload.send(left.min(FILL_CHUNK), deadline).await?;
            let time = deadline.saturating_duration_since(Instant::now());
            let (done, _) = ours::process_within(&self.store, chunk, sampling.slots, time).await?;
            ensure!(done == chunk, "out of time before {left} units were processed");
            left -= chunk;
        }
        Ok(())
    }

    /// The database's size on disk.
    pub(crate) fn bytes(&self) -> Result<f64> {
        self.database.bytes()
    }

    /// Sends and processes one sample, and adds its figures to `point`.
    pub(crate) async fn sample(
        &mut self,
        sampling: Sampling,
        deadline: Instant,
        point: &mut Point,
    ) -> Result<()> {
        let wal = self.database.wal_bytes()?;
        let start = Instant::now();
        let sent = self.workload.send(sampling.units, deadline).await?;
        point.send.push(sent as f64 / start.elapsed().as_secs_f64());
        let (done, took) = match self.axis {
            Axis::Processes => self.run_processes(sent, sampling).await?,
            axis => {
                let slots = if axis == Axis::Slots { u32::try_from(self.x)? } else { sampling.slots };
                ours::process_within(&self.store, sent, slots, sampling.limit).await?
            }
        };
        if done == 0 {
            eprintln!("{} {}: no unit was processed in {took:?}; counts as one", self.axis.name(), self.x);
        }
        // A point that processes nothing must show in the curve, and not be left out of it.
        point.process.push(done.max(1) as f64 / took.as_secs_f64());
        if let (Some(before), Some(after)) = (wal, self.database.wal_bytes()?)
            && done == sent
        {
            point.wal.push((after - before) / sent as f64);
        }
        Ok(())
    }

    async fn run_processes(&self, sent: usize, sampling: Sampling) -> Result<(usize, Duration)> {
        processes::run(&self.database, &self.store, self.x, sent, sampling).await
    }
}
