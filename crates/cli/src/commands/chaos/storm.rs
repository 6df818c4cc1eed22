//! The storm: submit, kill the submitter, submit again; work, kill workers, go on.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use longshore::{Batch, BatchId, Scope, Store};

use super::handler::Task;
use super::process::{BATCH, Process};
use super::random::Random;
use crate::args::proof::Chaos;
use crate::settings::Settings;
use crate::store;

/// How often we look at the batch.
const LOOK: Duration = Duration::from_millis(30);
/// No progress for this long means that something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happened.
#[derive(Debug)]
pub struct Record {
    /// Units wanted.
    pub units: u64,
    /// Slots per worker.
    pub slots: u32,
    /// Worker processes at a time.
    pub workers: u32,
    /// Workers killed.
    pub kills: u32,
    /// Restarts of the database server.
    pub restarts: u32,
    /// Lines that were in the store when the submitter was killed.
    pub submitter_killed_at: u64,
    /// Workers that did not end well when they were asked to.
    pub bad_ends: Vec<String>,
    /// How long all of it took.
    pub took: Duration,
}

/// Lets it happen.
pub async fn run(
    typed: &Chaos,
    seed: u64,
    dir: &Path,
    settings: &Settings,
) -> anyhow::Result<Record> {
    let began = Instant::now();
    let store = store::open(settings).await?;
    let bar = settings.output.bar("{spinner} {bar:40.green/dim} {pos}/{len}  {msg}");
    bar.set_length(typed.units);
    let random = Random::new(seed);
    let (workers, restarts) = (Vec::new(), 0);
    let mut storm = Storm { typed, dir, settings, store, random, workers, restarts, bar };
    storm.start_workers()?;
    let submitter_killed_at = storm.submit().await?;
    let kills = storm.rage().await?;
    let bad_ends = storm.calm().await;
    storm.bar.finish_and_clear();
    let Chaos { units, slots, workers, .. } = *typed;
    let (restarts, took) = (storm.restarts, began.elapsed());
    Ok(Record { units, slots, workers, kills, restarts, submitter_killed_at, bad_ends, took })
}

/// What happens to the processes of the storm.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Kill,
    Restart,
}

struct Storm<'a> {
    typed: &'a Chaos,
    dir: &'a Path,
    settings: &'a Settings,
    store: Arc<dyn Store>,
    random: Random,
    workers: Vec<Process>,
    restarts: u32,
    bar: ProgressBar,
}

impl Storm<'_> {
    fn start_workers(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.typed.workers {
            self.workers.push(Process::worker(self.dir, self.settings, self.typed.slots)?);
        }
        Ok(())
    }

    /// Sends the batch by a submitter that is killed midway and run again.
    async fn submit(&mut self) -> anyhow::Result<u64> {
        let lines = self.lines();
        self.bar.set_message("submitting");
        let mut first = Process::submitter(self.dir, self.settings)?;
        let half = lines.len() / 2;
        first.feed(lines[..half].concat().as_bytes());
        // Small storms may be over before the first chunk is: then nothing is there to be killed
        // midway, and that is fine too.
        let wanted = self.typed.units.min(50 * (self.typed.units / 200));
        self.until(|batch| batch.counts.total() >= wanted).await?;
        first.kill();
        let there = self.batch().await?.map_or(0, |batch| batch.counts.total());
        self.bar.println(format!("  ✂ killed the submitter after {there} units, running it again"));
        let mut second = Process::submitter(self.dir, self.settings)?;
        let fed = tokio::task::spawn_blocking(move || {
            second.feed(lines.concat().as_bytes());
            second.finish()
        });
        let status = fed.await??;
        if !status.success() {
            bail!("the second submitter ended with {status}");
        }
        Ok(there)
    }

    /// The work lasts about as long as the kills need.
    fn lines(&mut self) -> Vec<String> {
        let slots = u64::from(self.typed.workers * self.typed.slots);
        let wanted_ms = 3_000 + 250 * u64::from(self.typed.kills);
        let mean = (wanted_ms * slots / self.typed.units.max(1)).clamp(2, 400);
        let mut task = |n| Task { n, ms: self.random.below(2 * mean), abort: false };
        let line = |task: Task| format!("{{\"n\":{},\"ms\":{}}}\n", task.n, task.ms);
        (0..self.typed.units).map(|n| line(task(n))).collect()
    }

    /// Kills workers at random points of the batch's progress, and restarts the server in the middle
    /// if that is wanted, until the batch has ended.
    async fn rage(&mut self) -> anyhow::Result<u32> {
        let mut kills = 0;
        for (point, blow) in self.blows() {
            let batch = self.until(|batch| batch.counts.finished() >= point).await?;
            if batch.status.is_final() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(60))).await;
            match blow {
                Blow::Restart => self.restart().await?,
                Blow::Kill => {
                    self.strike()?;
                    kills += 1;
                    self.bar.set_message(format!("⚡ kill {kills} of {}", self.typed.kills));
                }
            }
        }
        self.bar.set_message(format!("⚡ {kills} kills; their units come back"));
        self.until(|batch| batch.status.is_final()).await?;
        Ok(kills)
    }

    /// What is to happen, and after how many units.
    fn blows(&mut self) -> Vec<(u64, Blow)> {
        let units = self.typed.units;
        let kills =
            (0..self.typed.kills).map(|_| (self.random.below(units * 95 / 100), Blow::Kill));
        let mut blows: Vec<_> = kills.collect();
        if self.typed.restart_command.is_some() {
            blows.push((units / 2, Blow::Restart));
        }
        blows.sort_by_key(|(point, _)| *point);
        blows
    }

    /// Restarts the server as the user said.
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

    fn strike(&mut self) -> anyhow::Result<()> {
        let victim = usize::try_from(self.random.below(self.workers.len() as u64))?;
        self.workers[victim].kill();
        self.workers[victim] = Process::worker(self.dir, self.settings, self.typed.slots)?;
        Ok(())
    }

    /// Asks the workers to drain; says how those ended that did not end well.
    async fn calm(&mut self) -> Vec<String> {
        self.bar.set_message("draining");
        for worker in &self.workers {
            worker.terminate();
        }
        let mut bad = Vec::new();
        for worker in &mut self.workers {
            match worker.ended_within(Duration::from_secs(20)).await {
                Some(status) if status.success() => {}
                Some(status) => bad.push(status.to_string()),
                None => bad.push("did not end".into()),
            }
        }
        bad
    }

    /// Waits until the batch is as wanted, or has ended.
    async fn until(&mut self, wanted: impl Fn(&Batch) -> bool) -> anyhow::Result<Batch> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            if let Some(batch) = self.batch().await? {
                self.bar.set_position(batch.counts.finished());
                if wanted(&batch) || batch.status.is_final() {
                    return Ok(batch);
                }
                if batch.counts.finished() + batch.counts.total() != last {
                    (last, moved) =
                        (batch.counts.finished() + batch.counts.total(), Instant::now());
                }
            }
            if moved.elapsed() > PATIENCE {
                bail!("no progress for {} s", PATIENCE.as_secs());
            }
            self.see_to_workers()?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A worker that ends by itself in the storm is a finding.
    fn see_to_workers(&mut self) -> anyhow::Result<()> {
        let dir = self.dir;
        for worker in &mut self.workers {
            if let Some(status) = worker.ended() {
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
            // Connections of before the restart are broken; whether it came back shows in time.
            Err(error) if self.restarts > 0 && error.is_retryable() => Ok(None),
            Err(error) => Err(error).context("cannot look at the batch"),
        }
    }
}
