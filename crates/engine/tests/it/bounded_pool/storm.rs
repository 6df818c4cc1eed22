//! A storm through `BoundedPool` itself: many who acquire, give up in the middle, try, and lose answers,
//! while the pool is resized. `LONGSHORE_SOAK=1` makes it larger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore::{BoundedPool, Priority};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{busy, figures, remote};

const LARGEST: u32 = 4;

/// Counts what is held by other means than the pool's.
#[derive(Default)]
struct Witness {
    held: AtomicU32,
    most: AtomicU32,
    uses: AtomicU32,
}

/// What somebody holds, as the witness sees it.
struct Seen<'w>(&'w Witness, u32);

impl Witness {
    fn sees(&self, weight: u32) -> Seen<'_> {
        let held = self.held.fetch_add(weight, Ordering::SeqCst) + weight;
        self.most.fetch_max(held, Ordering::SeqCst);
        self.uses.fetch_add(1, Ordering::SeqCst);
        Seen(self, weight)
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(self.1, Ordering::SeqCst);
    }
}

fn soaked(small: u32, large: u32) -> u32 {
    if std::env::var_os("LONGSHORE_SOAK").is_some() { large } else { small }
}

/// A number for each round of each caller that has no order to it.
fn roll(caller: u32, round: u32) -> u32 {
    (caller * 7919 + round * 104_729 + 1).wrapping_mul(2_654_435_761) >> 7
}

/// One use of the pool, or one that is given up at some moment of it.
async fn one_use(pool: &BoundedPool, witness: &Witness, roll: u32) {
    let weight = roll % 3 + 1;
    let (brief, work) = (Duration::from_micros(u64::from(roll % 5000)), Duration::from_millis(2));
    let using = async {
        let request = pool.request().weight(weight);
        let request =
            if roll.is_multiple_of(7) { request.priority(Priority::HIGH) } else { request };
        let Ok(permit) = request.acquire().await else { return };
        let seen = witness.sees(weight);
        sleep(work).await;
        // The witness looks away first: from then on somebody else may have it.
        drop(seen);
        drop(permit);
    };
    match roll % 5 {
        // Cancelled while it waits, while it is granted, or while it works.
        0 | 1 => _ = timeout(brief, using).await,
        2 => {
            if let Ok(Some(permit)) = pool.request().weight(weight).try_acquire().await {
                let seen = witness.sees(weight);
                tokio::task::yield_now().await;
                drop(seen);
                // What becomes of it if the back end does not answer is tried beside.
                let _ = permit.release().await;
            }
        }
        3 => {
            let using = pool.with_permit(async {
                let _seen = witness.sees(1);
                sleep(work).await;
            });
            _ = timeout(brief * 4, using).await;
        }
        _ => using.await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounded_whatever_is_given_up_in_the_middle() {
    let (callers, rounds, seconds) = (soaked(24, 64), soaked(40, 200), soaked(120, 600));
    let (builder, permits) = remote(LARGEST);
    let pool = builder.lease(Duration::from_secs(600)).build();
    let witness = Arc::new(Witness::default());
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let (pool, witness) = (pool.clone(), Arc::clone(&witness));
        tasks.spawn(async move {
            for round in 0..rounds {
                one_use(&pool, &witness, roll(caller, round)).await;
            }
        });
    }
    let (resized, faulty) = (pool.clone(), Arc::clone(&permits));
    let mut weather = JoinSet::new();
    weather.spawn(async move {
        for n in 0.. {
            sleep(Duration::from_millis(10)).await;
            // Never so small that somebody would be too heavy for it.
            resized.resize(LARGEST - n % 2).await.unwrap();
            faulty.lose_answers(u64::from(n % 10 == 0));
        }
    });
    if timeout(Duration::from_secs(seconds.into()), tasks.join_all()).await.is_err() {
        panic!("it came to a standstill: {:#?}", figures(&pool).await);
    }
    weather.abort_all();
    pool.resize(LARGEST).await.unwrap();
    pool.settle().await;
    let most = witness.most.load(Ordering::SeqCst);
    assert!(most <= LARGEST, "{most} of {LARGEST} were held");
    assert_eq!(most, LARGEST, "no storm");
    // A fifth waits however long it takes; of the others the more give up the more there are.
    assert!(witness.uses.load(Ordering::SeqCst) > callers * rounds / 6, "hardly anybody got one");
    assert_eq!(busy(&pool).await, (0, 0), "{:#?}", figures(&pool).await);
    assert_eq!((figures(&pool).await.expired, pool.stats().await.held_here), (0, 0));
    let all = pool.request().weight(LARGEST).acquire().await;
    assert!(all.is_ok(), "every permit is back");
}
