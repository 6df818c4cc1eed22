//! One process of a chaos test: acquires, holds, renews and releases permits, and gives up at random points.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull, Permits};
use longshore_core::{PermitId, PoolName, Priority};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::referee::PermitEvent;
use crate::Rng;

/// The configuration of a process, passed in an environment variable.
#[derive(Debug, Clone)]
pub struct ChaosProcessConfig {
    /// The address of the pool: a URL or a path, depending on the back end.
    pub pool_address: String,
    pub(super) pool: PoolName,
    pub(super) referee: String,
    pub(super) seed: u64,
    pub(super) max: u32,
    pub(super) ttl: Duration,
    pub(super) queue_ttl: Duration,
}

const CONFIG_VAR: &str = "LONGSHORE_STORM_ORDERS";
/// Longer than a chaos test.
const NO_TIMEOUT: Duration = Duration::from_secs(86_400);
/// Tasks in each process that use permits.
const TASKS_PER_PROCESS: u64 = 2;

impl ChaosProcessConfig {
    /// The environment variable: its name and value.
    pub(super) fn variable(&self) -> (&'static str, String) {
        let Self { pool_address: place_of_pool, pool, referee, seed, max, ttl, queue_ttl } = self;
        let (ttl, queue_ttl) = (ttl.as_millis(), queue_ttl.as_millis());
        (CONFIG_VAR, format!("{pool} {referee} {seed} {max} {ttl} {queue_ttl} {place_of_pool}"))
    }

    /// The configuration of this process, if a chaos test started it.
    pub fn from_env() -> Option<Self> {
        let text = std::env::var(CONFIG_VAR).ok()?;
        let mut words = text.splitn(7, ' ');
        let pool = words.next()?.parse().ok()?;
        let referee = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (seed, max, ttl, queue_ttl) = (number()?, number()?, number()?, number()?);
        Some(Self {
            pool_address: words.next()?.to_owned(),
            pool,
            referee,
            seed,
            max: u32::try_from(max).ok()?,
            ttl: Duration::from_millis(ttl),
            queue_ttl: Duration::from_millis(queue_ttl),
        })
    }
}

/// Acquires and releases permits until the referee tells the process to stop.
pub async fn run_process(orders: ChaosProcessConfig, permits: Arc<dyn Permits>) {
    let mut tasks = JoinSet::new();
    for n in 0..TASKS_PER_PROCESS {
        let (orders, permits) = (orders.clone(), Arc::clone(&permits));
        tasks.spawn(async move {
            // The referee is gone when the test has ended or failed.
            if let Ok(referee) = TcpStream::connect(&orders.referee).await {
                let rng = Rng::new(orders.seed + n);
                let referee = BufReader::new(referee);
                let _ = PermitUser { orders, permits, referee, rng, stopped: false }.run().await;
            }
        });
    }
    tasks.join_all().await;
}

struct PermitUser {
    orders: ChaosProcessConfig,
    permits: Arc<dyn Permits>,
    referee: BufReader<TcpStream>,
    rng: Rng,
    stopped: bool,
}

impl PermitUser {
    async fn run(&mut self) -> io::Result<()> {
        while !self.stopped {
            let ask = self.ask();
            let gives_up = self.rng.percent(15);
            let after = Duration::from_micros(self.rng.below(30_000));
            let wait_limit = if gives_up { after } else { NO_TIMEOUT };
            if self.acquire(&ask, Instant::now() + wait_limit).await? {
                self.hold(&ask).await?;
            }
            self.release(&ask).await?;
        }
        Ok(())
    }

    fn ask(&mut self) -> AcquireRequest {
        let waits = self.rng.percent(90);
        AcquireRequest {
            id: PermitId::new(),
            max: self.orders.max,
            weight: if self.rng.percent(20) { 2 } else { 1 },
            priority: Priority::NORMAL,
            owner: "storm".into(),
            ttl: self.orders.ttl,
            if_full: if waits { IfFull::Wait(self.orders.queue_ttl) } else { IfFull::Fail },
        }
    }

    /// Repeats the request until the pool grants or rejects it. At `until` the call in flight is dropped
    /// wherever it is. Returns whether the permit was granted.
    async fn acquire(&mut self, ask: &AcquireRequest, until: Instant) -> io::Result<bool> {
        loop {
            self.report(PermitEvent::Requested(ask.id)).await?;
            let call = self.permits.acquire(&self.orders.pool, ask);
            match tokio::time::timeout_at(until, call).await {
                Err(_) => return Ok(false),
                Ok(Ok(AcquireResult::Granted(grant))) => {
                    self.report(PermitEvent::Granted(ask.id, grant.fence, ask.weight)).await?;
                    return Ok(true);
                }
                Ok(Ok(AcquireResult::Waiting { retry_after, .. })) => {
                    self.report(PermitEvent::Queued(ask.id)).await?;
                    let turn = self.permits.wait_for_wakeup(&self.orders.pool, ask.id);
                    // Renewed early: the place in the queue must not expire because the machine is busy.
                    let again = Instant::now() + retry_after.min(self.orders.queue_ttl / 3);
                    let _ = tokio::time::timeout_at(again.min(until), turn).await;
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
                Ok(Ok(AcquireResult::Full | AcquireResult::TooHeavy { .. })) => {
                    retry_pause().await;
                    return Ok(false);
                }
                Ok(Err(_)) => retry_pause().await,
            }
        }
    }

    /// Holds the permit for a few milliseconds, or in 3 % of cases for longer than a lease.
    async fn hold(&mut self, ask: &AcquireRequest) -> io::Result<()> {
        let outlives_lease = self.rng.percent(3);
        let hold_time = Duration::from_micros(self.rng.below(20_000));
        if !outlives_lease {
            tokio::time::sleep(hold_time).await;
            return Ok(());
        }
        for _ in 0..5 {
            tokio::time::sleep(self.orders.ttl / 3).await;
            self.report(PermitEvent::Requested(ask.id)).await?;
            match self.permits.renew(&self.orders.pool, &[ask.id], self.orders.ttl).await {
                Ok(lost) if lost.is_empty() => self.report(PermitEvent::Renewed(ask.id)).await?,
                Ok(_) => return self.report(PermitEvent::Released(ask.id)).await,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Repeats the release until the back end confirms it; in 10 % of cases releases twice.
    async fn release(&mut self, ask: &AcquireRequest) -> io::Result<()> {
        self.report(PermitEvent::Released(ask.id)).await?;
        let twice = u32::from(self.rng.percent(10));
        for _ in 0..=twice {
            while self.permits.release(&self.orders.pool, &[ask.id], false).await.is_err() {
                retry_pause().await;
            }
        }
        Ok(())
    }

    /// Sends an event to the referee and waits for its confirmation.
    async fn report(&mut self, event: PermitEvent) -> io::Result<()> {
        self.referee.get_mut().write_all(format!("{event}\n").as_bytes()).await?;
        let mut answer = String::new();
        if self.referee.read_line(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stopped |= answer == "stop\n";
        Ok(())
    }
}

async fn retry_pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
