//! Submits a batch, kills the submitter and submits again; then kills workers, and lets them and the
//! store fail otherwise if requested, until the batch has ended.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use longshore::{Batch, BatchId, Scope, Store};
use serde::Serialize;

use super::handler::ChaosTask;
use super::process::{BATCH, ChildProcess};
use super::random::SplitMix64;
use super::store_link::{StoreFault, StoreLink};
use crate::args::chaos_bench::ChaosArgs;
use crate::host_identity;
use crate::settings::Settings;
use crate::store;

/// Interval between two reads of the batch.
const POLL_INTERVAL: Duration = Duration::from_millis(30);
/// How long a worker is stopped: longer than its session lives, so that others take over its units.
const PAUSE: Duration = Duration::from_secs(4);
/// Without progress for this long the run fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// What happened in a run.
#[derive(Debug)]
pub struct ChaosRecord {
    /// Units submitted.
    pub units: u64,
    /// Slots per worker.
    pub slots: u32,
    /// Worker processes at a time.
    pub workers: u32,
    /// Workers killed.
    pub kills: u32,
    /// Restarts of the database server.
    pub restarts: u32,
    /// Faults other than kills and restarts, in order.
    pub faults: Vec<FaultRecord>,
    /// Lines that were in the store when the submitter was killed.
    pub submitter_killed_at: u64,
    /// Exit statuses of workers that failed when they were told to drain.
    pub bad_ends: Vec<String>,
    /// The duration of the run.
    pub took: Duration,
}

/// A fault other than a kill or a restart.
#[derive(Debug, Clone, Serialize)]
pub struct FaultRecord {
    /// What failed.
    pub fault: &'static str,
    /// How many workers may have to run their units again.
    #[serde(skip)]
    pub struck: u32,
    /// How long after the fault's end a unit ended.
    pub recovered_after_seconds: f64,
}

/// Runs the batch under faults.
pub async fn run(
    typed: &ChaosArgs,
    seed: u64,
    dir: &Path,
    settings: &Settings,
) -> anyhow::Result<ChaosRecord> {
    let began = Instant::now();
    let store = store::open(settings).await?;
    let bar = settings.output.bar("{spinner} {bar:40.green/dim} {pos}/{len}  {msg}");
    bar.set_length(typed.units);
    let random = SplitMix64::new(seed);
    let (workers, restarts, faults) = (Vec::new(), 0, Vec::new());
    let (link, worker_settings) = match typed.faults {
        true => StoreLink::open(settings)?,
        false => (StoreLink::Direct, settings.clone()),
    };
    let mut chaos_run = ChaosRun {
        typed,
        dir,
        settings,
        worker_settings,
        link,
        store,
        random,
        workers,
        restarts,
        faults,
        bar,
    };
    chaos_run.start_workers()?;
    let submitter_killed_at = chaos_run.submit().await?;
    let kills = chaos_run.inject_faults().await?;
    let bad_ends = chaos_run.drain_workers().await?;
    chaos_run.bar.finish_and_clear();
    let ChaosArgs { units, slots, workers, .. } = *typed;
    let (restarts, faults, took) = (chaos_run.restarts, chaos_run.faults, began.elapsed());
    Ok(ChaosRecord { units, slots, workers, kills, restarts, faults, submitter_killed_at, bad_ends, took })
}

/// A fault.
#[derive(Debug, Clone, Copy)]
enum ChaosFault {
    Kill,
    Restart,
    /// Stops a worker for a while.
    Pause,
    Store(StoreFault),
}

struct ChaosRun<'a> {
    typed: &'a ChaosArgs,
    dir: &'a Path,
    settings: &'a Settings,
    /// The settings by which workers reach the store.
    worker_settings: Settings,
    link: StoreLink,
    store: Arc<dyn Store>,
    random: SplitMix64,
    workers: Vec<ChildProcess>,
    restarts: u32,
    faults: Vec<FaultRecord>,
    bar: ProgressBar,
}

impl ChaosRun<'_> {
    fn start_workers(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.typed.workers {
            self.workers.push(ChildProcess::worker(self.dir, &self.worker_settings, self.typed.slots)?);
        }
        Ok(())
    }

    /// Submits the batch by a submitter that is killed midway and run again.
    async fn submit(&mut self) -> anyhow::Result<u64> {
        let lines = self.lines();
        self.bar.set_message("submitting");
        let mut first = ChildProcess::submitter(self.dir, self.settings)?;
        let half = lines.len() / 2;
        first.write_stdin(lines[..half].concat().as_bytes());
        // A small run may be over before the first chunk is sent: then there is nothing to kill
        // midway, which is fine too.
        let wanted = self.typed.units.min(50 * (self.typed.units / 200));
        self.until(|batch| batch.counts.total() >= wanted).await?;
        first.kill();
        let there = self.batch().await?.map_or(0, |batch| batch.counts.total());
        self.bar.println(format!("  ✂ killed the submitter after {there} units, running it again"));
        let mut second = ChildProcess::submitter(self.dir, self.settings)?;
        let fed = tokio::task::spawn_blocking(move || {
            second.write_stdin(lines.concat().as_bytes());
            second.wait()
        });
        let status = fed.await??;
        if !status.success() {
            bail!("the second submitter ended with {status}");
        }
        Ok(there)
    }

    /// The payloads: units take about as long as the kills need.
    fn lines(&mut self) -> Vec<String> {
        let slots = u64::from(self.typed.workers * self.typed.slots);
        let store_faults = if self.typed.faults { self.link.faults().len() as u64 + 2 } else { 0 };
        let wanted_ms = 3_000 + 250 * u64::from(self.typed.kills) + 2_000 * store_faults;
        let mean = (wanted_ms * slots / self.typed.units.max(1)).clamp(2, 400);
        let mut task = |n| ChaosTask { n, ms: self.random.below(2 * mean), abort: false };
        let line = |task: ChaosTask| format!("{{\"n\":{},\"ms\":{}}}\n", task.n, task.ms);
        (0..self.typed.units).map(|n| line(task(n))).collect()
    }

    /// Kills workers at random points of the batch's progress, and restarts the server in the
    /// middle if requested, until the batch has ended.
    async fn inject_faults(&mut self) -> anyhow::Result<u32> {
        let mut kills = 0;
        for (point, fault) in self.faults() {
            let batch = self.until(|batch| batch.counts.finished() >= point).await?;
            if batch.status.is_final() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(60))).await;
            match fault {
                ChaosFault::Restart => self.restart().await?,
                ChaosFault::Pause => self.pause_worker().await?,
                ChaosFault::Store(fault) => {
                    self.bar.println(format!("  ⚡ {}", fault.name()));
                    self.link.inject(fault).await?;
                    self.record_recovery(fault.name(), self.typed.workers).await?;
                }
                ChaosFault::Kill => {
                    self.kill_worker()?;
                    kills += 1;
                    self.bar.set_message(format!("⚡ kill {kills} of {}", self.typed.kills));
                }
            }
        }
        self.bar.set_message(format!("⚡ {kills} kills; their units are reclaimed"));
        self.until(|batch| batch.status.is_final()).await?;
        Ok(kills)
    }

    /// The faults, and after how many finished units each happens.
    fn faults(&mut self) -> Vec<(u64, ChaosFault)> {
        let units = self.typed.units;
        let kills = (0..self.typed.kills).map(|_| (self.random.below(units * 95 / 100), ChaosFault::Kill));
        let mut faults: Vec<_> = kills.collect();
        if self.typed.restart_command.is_some() {
            faults.push((units / 2, ChaosFault::Restart));
        }
        if self.typed.faults {
            let store = self.link.faults().iter().map(|fault| ChaosFault::Store(*fault));
            let others: Vec<_> =
                [ChaosFault::Pause].into_iter().chain(store).chain([ChaosFault::Pause]).collect();
            let spread = |n: usize| units * (n as u64 + 1) / (others.len() as u64 + 2);
            faults.extend(others.iter().enumerate().map(|(n, fault)| (spread(n), *fault)));
        }
        faults.sort_by_key(|(point, _)| *point);
        faults
    }

    /// Stops a worker, and continues it after others have taken over its units.
    async fn pause_worker(&mut self) -> anyhow::Result<()> {
        let name = "worker stopped for 4 s";
        self.bar.println(format!("  ⚡ {name}"));
        let victim = usize::try_from(self.random.below(self.workers.len() as u64))?;
        self.workers[victim].pause();
        tokio::time::sleep(PAUSE).await;
        self.workers[victim].resume();
        self.record_recovery(name, 1).await
    }

    /// Waits until a unit ends, and records how long that took.
    async fn record_recovery(&mut self, fault: &'static str, struck: u32) -> anyhow::Result<()> {
        let healed = Instant::now();
        let before = self.batch().await?.map_or(0, |batch| batch.counts.finished());
        self.until(|batch| batch.counts.finished() > before).await?;
        let recovered_after_seconds = healed.elapsed().as_secs_f64();
        self.faults.push(FaultRecord { fault, struck, recovered_after_seconds });
        Ok(())
    }

    /// Restarts the server with the user's command.
    async fn restart(&mut self) -> anyhow::Result<()> {
        let Some(typed) = &self.typed.restart_command else { return Ok(()) };
        self.bar.println("  ⚡ restarting the server");
        self.restarts += 1;
        let status = tokio::process::Command::new("sh").args(["-c", typed]).status().await;
        match status.context("cannot run the restart command")? {
            status if status.success() => Ok(()),
            status => bail!("the restart command ended with {status}"),
        }
    }

    fn kill_worker(&mut self) -> anyhow::Result<()> {
        let victim = usize::try_from(self.random.below(self.workers.len() as u64))?;
        self.workers[victim].kill();
        self.workers[victim] = ChildProcess::worker(self.dir, &self.worker_settings, self.typed.slots)?;
        Ok(())
    }

    /// Tells the workers to drain; returns the exit statuses of failed workers.
    async fn drain_workers(&mut self) -> anyhow::Result<Vec<String>> {
        self.bar.set_message("draining");
        for worker in &self.workers {
            worker.terminate();
        }
        let mut bad = Vec::new();
        for worker in &mut self.workers {
            match worker.wait_within(Duration::from_secs(20)).await {
                Some(status) if status.success() => {}
                // SIGTERM ends a worker that has just been started and holds nothing yet.
                Some(status)
                    if status.signal().is_some() && !has_session(&*self.store, worker.id()).await? => {}
                Some(status) => bad.push(status.to_string()),
                None => bad.push("did not end".into()),
            }
        }
        Ok(bad)
    }

    /// Waits until `wanted` holds for the batch, or it has ended.
    async fn until(&mut self, wanted: impl Fn(&Batch) -> bool) -> anyhow::Result<Batch> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            if let Some(batch) = self.batch().await? {
                self.bar.set_position(batch.counts.finished());
                if wanted(&batch) || batch.status.is_final() {
                    return Ok(batch);
                }
                if batch.counts.finished() + batch.counts.total() != last {
                    (last, moved) = (batch.counts.finished() + batch.counts.total(), Instant::now());
                }
            }
            if moved.elapsed() > STALL_TIMEOUT {
                bail!("no progress for {} s", STALL_TIMEOUT.as_secs());
            }
            self.check_workers()?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A worker that ends by itself is an error.
    fn check_workers(&mut self) -> anyhow::Result<()> {
        let dir = self.dir;
        for worker in &mut self.workers {
            if let Some(status) = worker.exit_status() {
                let words = std::fs::read_to_string(dir.join("workers.log")).unwrap_or_default();
                let last = words.lines().last().unwrap_or_default();
                bail!("a worker ended by itself ({status}): {last}");
            }
        }
        Ok(())
    }

    async fn batch(&self) -> anyhow::Result<Option<Batch>> {
        let name = BatchId::new(BATCH)?;
        match self.store.batch(&Scope::All, &name).await {
            Ok(batch) => Ok(Some(batch)),
            Err(longshore::Error::NotFound { .. }) => Ok(None),
            // Connections opened before the restart are broken; if the server does not return, the
            // timeout shows it.
            Err(error) if self.restarts > 0 && error.is_retryable() => Ok(None),
            Err(error) => Err(error).context("cannot read the batch"),
        }
    }
}

/// Whether the store has an open session of this process.
async fn has_session(store: &dyn Store, pid: u32) -> anyhow::Result<bool> {
    let label = host_identity::worker_label(pid);
    Ok(store
        .sessions()
        .await
        .context("cannot list the sessions")?
        .iter()
        .any(|session| session.label == label))
}
