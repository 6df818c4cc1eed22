//! `bounded`: under concurrent use, the pool never grants more than its maximum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore_core::permits::AcquireResult;
use tokio::task::JoinSet;

use super::permits_helpers::*;
use crate::PermitsFixture;

const MAX: u32 = 4;

/// Counts the held weight independently of the pool.
#[derive(Default)]
struct HoldCounter {
    held: AtomicU32,
    peak: AtomicU32,
}

impl HoldCounter {
    fn add(&self, weight: u32) {
        let held = self.held.fetch_add(weight, Ordering::SeqCst) + weight;
        self.peak.fetch_max(held, Ordering::SeqCst);
    }

    fn remove(&self, weight: u32) {
        self.held.fetch_sub(weight, Ordering::SeqCst);
    }
}

pub(super) async fn bounded(fixture: &PermitsFixture) {
    let counter = Arc::new(HoldCounter::default());
    let mut tasks = JoinSet::new();
    for n in 0..24_u32 {
        let (mut fixture, counter) = (fixture.clone(), Arc::clone(&counter));
        if n % 2 == 1 {
            std::mem::swap(&mut fixture.permits, &mut fixture.second_process);
        }
        tasks.spawn(async move {
            for round in 0..6 {
                use_permit(&fixture, &counter, n * 7 + round).await;
            }
        });
    }
    tasks.join_all().await;
    let (peak, stats) = (counter.peak.load(Ordering::SeqCst), fixture.stats().await);
    assert!(peak <= MAX, "weight {peak} was held, the maximum is {MAX}");
    assert!(peak == MAX, "the pool was never full: at most {peak} of {MAX} were held");
    assert_eq!((stats.in_use, stats.waiting.len(), stats.expired), (0, 0, 0));
}

/// Acquires, holds and releases a permit. Some variants give up, some do not wait, some release twice.
async fn use_permit(fixture: &PermitsFixture, counter: &HoldCounter, variant: u32) {
    let ask = weighted_request(variant % 3 + 1, MAX);
    match variant % 5 {
        0 => {
            let wait_limit = Duration::from_micros(u64::from(variant) * 10);
            if tokio::time::timeout(wait_limit, fixture.wait_and_acquire(&ask)).await.is_err() {
                return fixture.time_out(ask.id).await;
            }
        }
        1 => {
            let AcquireResult::Granted(_) = fixture.request(&without_waiting(&ask)).await else {
                return;
            };
        }
        _ => {
            fixture.wait_and_acquire(&ask).await;
        }
    }
    counter.add(ask.weight);
    tokio::time::sleep(Duration::from_micros(u64::from(variant % 4) * 200)).await;
    counter.remove(ask.weight);
    for _ in 0..=variant % 2 {
        fixture.release(ask.id).await;
    }
}
