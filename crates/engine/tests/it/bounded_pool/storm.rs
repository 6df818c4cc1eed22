//! Stress test of `BoundedPool`: many tasks acquire, cancel midway, try and lose responses while
//! the pool is resized. `LONGSHORE_SOAK=1` makes it larger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore::{BoundedPool, Priority};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{pool_stats, remote, usage};

const LARGEST: u32 = 4;

/// Counts held permits independently of the pool.
#[derive(Default)]
struct UsageCounter {
    held: AtomicU32,
    most: AtomicU32,
    uses: AtomicU32,
}

/// A use of a permit as the counter sees it.
struct CountedUse<'w>(&'w UsageCounter, u32);

impl UsageCounter {
    fn count(&self, weight: u32) -> CountedUse<'_> {
        let held = self.held.fetch_add(weight, Ordering::SeqCst) + weight;
        self.most.fetch_max(held, Ordering::SeqCst);
        self.uses.fetch_add(1, Ordering::SeqCst);
        CountedUse(self, weight)
    }
}

impl Drop for CountedUse<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(self.1, Ordering::SeqCst);
    }
}

fn soak_size(small: u32, large: u32) -> u32 {
    if std::env::var_os("LONGSHORE_SOAK").is_some() { large } else { small }
}

/// A pseudo-random number for each round of each caller.
fn random(caller: u32, round: u32) -> u32 {
    (caller * 7919 + round * 104_729 + 1).wrapping_mul(2_654_435_761) >> 7
}

/// Uses the pool once, or cancels at some point.
async fn one_use(pool: &BoundedPool, counter: &UsageCounter, random: u32) {
    let weight = random % 3 + 1;
    let (brief, work) = (Duration::from_micros(u64::from(random % 5000)), Duration::from_millis(2));
    let using = async {
        let request = pool.request().weight(weight);
        let request = if random.is_multiple_of(7) { request.priority(Priority::HIGH) } else { request };
        let Ok(permit) = request.acquire().await else { return };
        let counted = counter.count(weight);
        sleep(work).await;
        // Count down first: once the permit is dropped another task may hold it.
        drop(counted);
        drop(permit);
    };
    match random % 5 {
        // Cancelled while it waits, while it is granted, or while it works.
        0 | 1 => _ = timeout(brief, using).await,
        2 => {
            if let Ok(Some(permit)) = pool.request().weight(weight).try_acquire().await {
                let counted = counter.count(weight);
                tokio::task::yield_now().await;
                drop(counted);
                // If the backend does not answer, the release is retried in the background.
                let _ = permit.release().await;
            }
        }
        3 => {
            let using = pool.with_permit(async {
                let _seen = counter.count(1);
                sleep(work).await;
            });
            _ = timeout(brief * 4, using).await;
        }
        _ => using.await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounded_whatever_is_given_up_in_the_middle() {
    let (callers, rounds, seconds) = (soak_size(24, 64), soak_size(40, 200), soak_size(120, 600));
    let (builder, permits) = remote(LARGEST);
    let pool = builder.lease(Duration::from_secs(600)).build();
    let counter = Arc::new(UsageCounter::default());
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let (pool, counter) = (pool.clone(), Arc::clone(&counter));
        tasks.spawn(async move {
            for round in 0..rounds {
                one_use(&pool, &counter, random(caller, round)).await;
            }
        });
    }
    let (resized, faulty) = (pool.clone(), Arc::clone(&permits));
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        for n in 0.. {
            sleep(Duration::from_millis(10)).await;
            // Never so small that a request would be too heavy.
            resized.resize(LARGEST - n % 2).await.unwrap();
            faulty.lose_answers(u64::from(n % 10 == 0));
        }
    });
    if timeout(Duration::from_secs(seconds.into()), tasks.join_all()).await.is_err() {
        panic!("it came to a standstill: {:#?}", pool_stats(&pool).await);
    }
    driver.abort_all();
    pool.resize(LARGEST).await.unwrap();
    pool.flush().await;
    let most = counter.most.load(Ordering::SeqCst);
    assert!(most <= LARGEST, "{most} of {LARGEST} were held");
    assert_eq!(most, LARGEST, "no storm");
    // A fifth of the calls wait without a limit; of the others, more give up the more callers there
    // are.
    assert!(counter.uses.load(Ordering::SeqCst) > callers * rounds / 6, "too few permits were granted");
    assert_eq!(usage(&pool).await, (0, 0), "{:#?}", pool_stats(&pool).await);
    assert_eq!((pool_stats(&pool).await.expired, pool.stats().await.held_here), (0, 0));
    let all = pool.request().weight(LARGEST).acquire().await;
    assert!(all.is_ok(), "every permit is back");
}
