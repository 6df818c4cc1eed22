//! The driver of a chaos test: starts processes, kills and stops them, resizes the pool, restarts its server.

use std::io;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_core::permits::{AcquireRequest, IfFull, Permits, PoolStats};
use longshore_core::{PermitId, PoolName, Priority};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use super::oracle::Oracle;
use super::process::ChaosProcessConfig;
use super::referee::Referee;
use super::report::ChaosReport;
use crate::Rng;

/// The size of a chaos test.
#[derive(Debug, Clone)]
pub struct ChaosTest {
    /// Processes that run at the same time.
    pub processes: usize,
    /// Permits to be granted per process, at least.
    pub acquires_per_process: u64,
    /// The lifetime of a lease.
    pub ttl: Duration,
    /// The lifetime of a place in the queue.
    pub queue_ttl: Duration,
    /// How often the server is restarted.
    pub restarts: u32,
    /// Whether a restart loses all data. The pool then takes its maximum from the next request.
    pub loses_data: bool,
}

/// Makes the command of a process. The driver adds the [`ChaosProcessConfig`] to its environment, and the process calls
/// [`run_process`](super::run_process()).
pub type ProcessFactory<'a> = &'a dyn Fn() -> io::Result<Command>;

/// The pool's first maximum; later ones are up to twice that.
const INITIAL_MAX: u32 = 4;
/// The test fails when it takes longer.
const TEST_TIMEOUT: Duration = Duration::from_secs(900);

impl ChaosTest {
    /// A small test; the full size with `LONGSHORE_SOAK=1`.
    pub fn from_env() -> Self {
        let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
        let (processes, acquires_per_process) = if soak { (32, 200) } else { (8, 25) };
        let (ttl, queue_ttl) = (Duration::from_millis(1500), Duration::from_secs(6));
        Self { processes, acquires_per_process, ttl, queue_ttl, restarts: 2, loses_data: false }
    }

    /// Runs the test on a pool without other users. The processes find it at `place_of_pool`. `restart` restarts
    /// the server and returns when it accepts connections.
    pub async fn run(
        &self,
        permits: Arc<dyn Permits>,
        place_of_pool: &str,
        new_command: ProcessFactory<'_>,
        restart: &mut dyn FnMut(),
    ) -> io::Result<ChaosReport> {
        let target = self.acquires_per_process * u64::try_from(self.processes).unwrap_or(1);
        let oracle = Oracle::new(self.ttl, self.queue_ttl, INITIAL_MAX);
        let (referee, address) = Referee::start(oracle)?;
        let seed = u64::from(std::process::id());
        let orders = ChaosProcessConfig {
            pool_address: place_of_pool.to_owned(),
            pool: pool(),
            referee: address.to_string(),
            seed,
            max: INITIAL_MAX,
            ttl: self.ttl,
            queue_ttl: self.queue_ttl,
        };
        let mut processes = ProcessGroup { new_command, orders, children: Vec::new() };
        for _ in 0..self.processes {
            processes.start()?;
        }
        let rng = Rng::new(seed);
        let mut driver = Driver { storm: self, permits, referee, rng, report: empty_report(seed) };
        driver.inject_faults(&mut processes, target, restart).await?;
        processes.join(Instant::now() + TEST_TIMEOUT).await?;
        driver.verify().await
    }
}

fn pool() -> PoolName {
    // The name is valid.
    PoolName::new("storm").unwrap_or_else(|_| unreachable!())
}

fn empty_report(seed: u64) -> ChaosReport {
    ChaosReport {
        granted: 0,
        peak_weight: 0,
        killed: 0,
        stopped: 0,
        restarted: 0,
        resized: 0,
        violations: Vec::new(),
        final_stats: PoolStats::default(),
        seed,
    }
}

struct Driver<'a> {
    storm: &'a ChaosTest,
    permits: Arc<dyn Permits>,
    referee: Referee,
    rng: Rng,
    report: ChaosReport,
}

impl Driver<'_> {
    /// Injects faults until enough permits were granted.
    async fn inject_faults(
        &mut self,
        processes: &mut ProcessGroup<'_>,
        target: u64,
        restart: &mut dyn FnMut(),
    ) -> io::Result<()> {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let granted = self.referee.oracle().granted;
            if granted >= target && self.is_complete() {
                self.referee.finish();
                return Ok(());
            }
            processes.resume_due(Instant::now())?;
            if Instant::now() > until {
                return Err(io::Error::other(format!(
                    "timed out: the pool granted {granted} of {target} permits"
                )));
            }
            let due = u64::from(self.report.restarted + 1) * target / u64::from(self.storm.restarts + 1);
            if self.report.restarted < self.storm.restarts && granted >= due {
                self.restart(processes, restart).await?;
            }
            // Faults grow in proportion to the granted permits, so that neither starves the other.
            let due = self.faults_per_kind() * granted.min(target) / target + 1;
            match self.rng.below(4) {
                0 if u64::from(self.report.killed) < due => self.kill(processes)?,
                1 if u64::from(self.report.stopped) < due => self.stop(processes)?,
                2 if u64::from(self.report.resized) < due => self.resize(processes).await?,
                _ => {}
            }
            let pause = Duration::from_millis(10 + self.rng.below(50));
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether every kind of fault happened often enough.
    fn is_complete(&self) -> bool {
        let ChaosReport { killed, stopped, resized, restarted, .. } = self.report;
        restarted == self.storm.restarts
            && u64::from(killed.min(stopped).min(resized)) >= self.faults_per_kind()
    }

    /// How often each kind of fault happens: once for each process.
    fn faults_per_kind(&self) -> u64 {
        u64::try_from(self.storm.processes).unwrap_or(1)
    }

    fn kill(&mut self, processes: &mut ProcessGroup<'_>) -> io::Result<()> {
        let index = self.pick(processes);
        processes.kill(index)?;
        self.report.killed += 1;
        processes.start()
    }

    /// Stops a process for up to one and a half lease lifetimes.
    fn stop(&mut self, processes: &mut ProcessGroup<'_>) -> io::Result<()> {
        let index = self.pick(processes);
        let max_millis = u64::try_from(self.storm.ttl.as_millis()).unwrap_or(1000) * 3 / 2;
        let duration = Duration::from_millis(self.rng.below(max_millis));
        self.report.stopped += 1;
        processes.stop(index, Instant::now() + duration)
    }

    async fn restart(
        &mut self,
        processes: &mut ProcessGroup<'_>,
        restart: &mut dyn FnMut(),
    ) -> io::Result<()> {
        self.referee.oracle().server_epoch += 1;
        if self.storm.loses_data {
            // The pool may return to this maximum until the resize below.
            self.referee.oracle().begin_resize(INITIAL_MAX);
        }
        restart();
        self.referee.oracle().server_epoch += 1;
        self.report.restarted += 1;
        if self.storm.loses_data {
            self.resize(processes).await?;
        }
        Ok(())
    }

    async fn resize(&mut self, processes: &mut ProcessGroup<'_>) -> io::Result<()> {
        let max = 2 + u32::try_from(self.rng.below(u64::from(INITIAL_MAX) * 2 - 1)).unwrap_or(0);
        self.referee.oracle().begin_resize(max);
        let (permits, name) = (Arc::clone(&self.permits), pool());
        let resize = async {
            while permits.resize(&name, max).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut resize = pin!(resize);
        // A stopped process may hold the write lock: a SQLite file has one writer at a time.
        while timeout(Duration::from_millis(20), resize.as_mut()).await.is_err() {
            processes.resume_due(Instant::now())?;
        }
        self.referee.oracle().finish_resize(Instant::now());
        self.report.resized += 1;
        Ok(())
    }

    fn pick(&mut self, processes: &ProcessGroup<'_>) -> usize {
        let count = u64::try_from(processes.children.len()).unwrap_or(1);
        usize::try_from(self.rng.below(count)).unwrap_or(0)
    }

    /// Waits until the leases of killed processes have expired, then acquires the whole pool once.
    async fn verify(mut self) -> io::Result<ChaosReport> {
        let until = Instant::now() + TEST_TIMEOUT;
        let stats = loop {
            let stats = self.permits.stats(&pool()).await.map_err(io::Error::other)?;
            let stats = stats.unwrap_or_default();
            let idle = stats.in_use == 0 && stats.waiting.is_empty() && stats.quarantine.is_none();
            if idle || Instant::now() > until {
                break stats;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let all = AcquireRequest {
            id: PermitId::new(),
            max: INITIAL_MAX,
            weight: stats.max,
            priority: Priority::NORMAL,
            owner: "storm".into(),
            ttl: self.storm.ttl,
            if_full: IfFull::Fail,
        };
        let result = self.permits.acquire(&pool(), &all).await.map_err(io::Error::other)?;
        if !matches!(result, longshore_core::permits::AcquireResult::Granted(_)) {
            self.report
                .violations
                .push(format!("the whole pool could not be acquired at the end: {result:?}"));
        }
        self.permits.release(&pool(), &[all.id], false).await.map_err(io::Error::other)?;
        let mut oracle = self.referee.oracle();
        oracle.check_order();
        self.report.granted = oracle.granted;
        self.report.peak_weight = oracle.peak_weight;
        self.report.violations.append(&mut oracle.violations);
        drop(oracle);
        self.report.final_stats = stats;
        Ok(self.report)
    }
}

/// The running processes. Killed on drop.
struct ProcessGroup<'a> {
    new_command: ProcessFactory<'a>,
    orders: ChaosProcessConfig,
    children: Vec<ChaosProcess>,
}

struct ChaosProcess {
    child: Child,
    /// When a stopped process is continued.
    resume_at: Option<Instant>,
}

impl ProcessGroup<'_> {
    fn start(&mut self) -> io::Result<()> {
        self.orders.seed += 1000;
        let (name, value) = self.orders.variable();
        let mut command = (self.new_command)()?;
        command.env(name, value).stdin(Stdio::null()).stdout(Stdio::null());
        self.children.push(ChaosProcess { child: command.spawn()?, resume_at: None });
        Ok(())
    }

    fn kill(&mut self, index: usize) -> io::Result<()> {
        let mut process = self.children.swap_remove(index);
        process.child.kill()?;
        process.child.wait().map(drop)
    }

    fn stop(&mut self, index: usize, until: Instant) -> io::Result<()> {
        let process = &mut self.children[index];
        process.resume_at = Some(until);
        Ok(kill_process(Pid::from_child(&process.child), Signal::STOP)?)
    }

    /// Continues stopped processes that are due.
    fn resume_due(&mut self, now: Instant) -> io::Result<()> {
        for process in &mut self.children {
            if process.resume_at.take_if(|resume_at| *resume_at <= now).is_some() {
                kill_process(Pid::from_child(&process.child), Signal::CONT)?;
            }
        }
        Ok(())
    }

    /// Waits until all processes have ended. They end once the referee tells them to stop.
    async fn join(&mut self, until: Instant) -> io::Result<()> {
        while let Some(process) = self.children.last_mut() {
            match process.child.try_wait()? {
                Some(status) if status.success() => drop(self.children.pop()),
                Some(status) => {
                    return Err(io::Error::other(format!("a process of the chaos test failed: {status}")));
                }
                None if Instant::now() > until => {
                    return Err(io::Error::other("timed out: a process of the chaos test did not end"));
                }
                None => {
                    self.resume_due(Instant::now())?;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        Ok(())
    }
}

impl Drop for ProcessGroup<'_> {
    fn drop(&mut self) {
        for process in &mut self.children {
            // It may have ended already.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
