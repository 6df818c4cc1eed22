//! An in-memory ledger on tokio's clock, with delays and failures on demand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::accounts::token_bucket::{self, BucketLevel};
use longshore::accounts::{BucketRequest, Budget, BudgetState, DrawResult, Limits};
use longshore::time::Timestamp;
use longshore::{Error, Result, Scope, TenantId};
use tokio::time::{Instant, sleep};

pub(super) struct FakeLedger {
    begin: Instant,
    levels: Mutex<HashMap<String, BucketLevel>>,
    draws: AtomicU64,
    delay: Duration,
    trouble: Mutex<Option<Trouble>>,
}

/// How a ledger may fail.
#[derive(Clone, Copy)]
pub(super) enum Trouble {
    Away,
    Broken,
}

impl FakeLedger {
    pub(super) fn new() -> Arc<Self> {
        Self::slow(Duration::ZERO)
    }

    /// A ledger that takes this long to answer.
    pub(super) fn slow(delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            begin: Instant::now(),
            levels: Mutex::default(),
            draws: AtomicU64::new(0),
            delay,
            trouble: Mutex::default(),
        })
    }

    /// The level of a bucket after the last draw.
    pub(super) fn level(&self, bucket: &str) -> Option<f64> {
        self.levels.lock().unwrap().get(bucket).map(|level| level.level)
    }

    /// How often it was drawn from.
    pub(super) fn draws(&self) -> u64 {
        self.draws.load(Ordering::Relaxed)
    }

    pub(super) fn trouble(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().unwrap() = trouble;
    }

    fn draw_now(&self, draw: &BucketRequest) -> DrawResult {
        let micros = i64::try_from(self.begin.elapsed().as_micros()).unwrap();
        let mut levels = self.levels.lock().unwrap();
        let kept = levels.get(&draw.bucket).copied();
        let (drawn, level) = token_bucket::draw(kept, Timestamp::from_micros(micros), draw);
        levels.insert(draw.bucket.clone(), level);
        drawn
    }
}

#[async_trait]
impl Limits for FakeLedger {
    async fn draw(&self, draws: Vec<BucketRequest>) -> Result<Vec<DrawResult>> {
        self.draws.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            sleep(self.delay / 2).await;
        }
        match *self.trouble.lock().unwrap() {
            Some(Trouble::Away) => return Err(Error::unavailable("the network is down")),
            Some(Trouble::Broken) => return Err(Error::Invalid("no such table".into())),
            None => {}
        }
        let drawn = draws.iter().map(|draw| self.draw_now(draw)).collect();
        if !self.delay.is_zero() {
            sleep(self.delay / 2).await;
        }
        Ok(drawn)
    }

    async fn put_budget(&self, _: &Scope, _: &TenantId, _: Option<Budget>) -> Result<BudgetState> {
        Err(Error::Invalid("no budgets here".into()))
    }

    async fn budget(&self, _: &Scope, _: &TenantId) -> Result<BudgetState> {
        Err(Error::Invalid("no budgets here".into()))
    }
}
