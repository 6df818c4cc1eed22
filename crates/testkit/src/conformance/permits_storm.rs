//! `bounded`: whatever many do at once, no more is held than there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore_core::permits::{Answer, Leaving};
use tokio::task::JoinSet;

use super::permits_kit::*;
use crate::PermitsWorld;

const MAX: u32 = 4;

/// Counts what is held by other means than the pool's.
#[derive(Default)]
struct Witness {
    held: AtomicU32,
    most: AtomicU32,
}

impl Witness {
    fn takes(&self, weight: u32) {
        let held = self.held.fetch_add(weight, Ordering::SeqCst) + weight;
        self.most.fetch_max(held, Ordering::SeqCst);
    }

    fn gives(&self, weight: u32) {
        self.held.fetch_sub(weight, Ordering::SeqCst);
    }
}

pub(super) async fn bounded(world: &PermitsWorld) {
    let witness = Arc::new(Witness::default());
    let mut tasks = JoinSet::new();
    for n in 0..24_u32 {
        let (mut world, witness) = (world.clone(), Arc::clone(&witness));
        if n % 2 == 1 {
            std::mem::swap(&mut world.permits, &mut world.other);
        }
        tasks.spawn(async move {
            for round in 0..6 {
                one_use(&world, &witness, n * 7 + round).await;
            }
        });
    }
    tasks.join_all().await;
    let (most, stats) = (witness.most.load(Ordering::SeqCst), world.stats().await);
    assert!(most <= MAX, "{most} of {MAX} were held");
    assert!(most == MAX, "only {most} of {MAX} were ever held: no storm");
    assert_eq!((stats.in_use, stats.waiting.len(), stats.expired), (0, 0, 0));
}

/// What somebody does with a permit: most use it, some give up, some come twice.
async fn one_use(world: &PermitsWorld, witness: &Witness, roll: u32) {
    let ask = heavy(roll % 3 + 1, MAX);
    match roll % 5 {
        0 => {
            let patience = Duration::from_micros(u64::from(roll) * 10);
            if tokio::time::timeout(patience, world.take_in_turn(&ask)).await.is_err() {
                return world.leave(ask.id, Leaving::TimedOut).await;
            }
        }
        1 => {
            let Answer::Granted(_) = world.ask(&at_once(&ask)).await else { return };
        }
        _ => {
            world.take_in_turn(&ask).await;
        }
    }
    witness.takes(ask.weight);
    tokio::time::sleep(Duration::from_micros(u64::from(roll % 4) * 200)).await;
    witness.gives(ask.weight);
    for _ in 0..=roll % 2 {
        world.release(ask.id).await;
    }
}
