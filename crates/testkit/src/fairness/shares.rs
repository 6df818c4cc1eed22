//! Shares: ten tenants of very different sizes on one queue.

use std::collections::BTreeMap;

use longshore_core::store::TenantChange;
use longshore_core::{Outcome, TenantId};

use super::{ALL, claim, finish, queue, session, tenant, unit, verify};
use crate::World;

/// Units given in all.
const GIVEN: u64 = 10_000;
/// Weights by the size of the queue, smallest first: no order in common.
const WEIGHTS: [u32; 10] = [1, 4, 7, 10, 3, 6, 9, 2, 5, 8];
/// How many units a claim asks for, over and over: shares must not depend on it.
const ASKED: [u32; 6] = [1, 2, 5, 1, 16, 33];

/// Invariant `nobody_starves`: ten tenants with weights 1 to 10 and queues from 10 units to
/// `largest`, growing evenly between them. Over 10,000 claimed units each has its share within 5 %
/// of its weight against those that still have units, and nobody waits for a larger one: a tenant's
/// last unit leaves as soon as its weight allows.
pub async fn shares_follow_weights(world: &World, largest: u64) {
    let mut race = Race::new(largest);
    race.fill(world).await;
    let session = session(world).await;
    for ask in ASKED.iter().cycle() {
        if race.given == GIVEN {
            break;
        }
        let ask = u64::from(*ask).min(GIVEN - race.given);
        let held = claim(world, session, u32::try_from(ask).unwrap()).await;
        assert_eq!(held.len() as u64, ask, "there is enough for every claim");
        for one in &held {
            race.give(&one.unit.tenant);
        }
        finish(world, session, &held, &Outcome::Done(None)).await;
    }
    race.judge();
    verify(world).await;
}

struct Runner {
    weight: u32,
    size: u64,
    given: u64,
    /// What it would have been given by its weight, fractions and all.
    due: f64,
    /// After how many units, of all tenants together, its last one left.
    left_at: Option<u64>,
}

struct Race {
    runners: BTreeMap<TenantId, Runner>,
    given: u64,
}

impl Race {
    fn new(largest: u64) -> Self {
        let sizes = sizes(largest);
        assert!(sizes.iter().sum::<u64>() > GIVEN, "too few units for 10,000 claims");
        let runners = sizes.into_iter().zip(WEIGHTS).map(|(size, weight)| {
            let runner = Runner { weight, size, given: 0, due: 0.0, left_at: None };
            (tenant(&format!("weight-{weight}")), runner)
        });
        Self { runners: runners.collect(), given: 0 }
    }

    async fn fill(&self, world: &World) {
        let on = queue("shared");
        for (id, runner) in &self.runners {
            let weight = TenantChange { weight: Some(runner.weight), ..TenantChange::default() };
            world.store.put_tenant(&ALL, id, weight).await.unwrap();
            let mut left = usize::try_from(runner.size).unwrap();
            while left > 0 {
                let chunk = left.min(1_000);
                let units = (0..chunk).map(|_| unit(id, &on)).collect();
                world.store.send(&ALL, units).await.unwrap();
                left -= chunk;
            }
        }
    }

    /// One unit goes to `id`; all who still have units had a claim to it by their weight.
    fn give(&mut self, id: &TenantId) {
        self.given += 1;
        let open = |runner: &&mut Runner| runner.given < runner.size;
        let weights: u32 = self.runners.values_mut().filter(open).map(|runner| runner.weight).sum();
        for runner in self.runners.values_mut().filter(open) {
            runner.due += f64::from(runner.weight) / f64::from(weights);
        }
        let runner = self.runners.get_mut(id).unwrap();
        runner.given += 1;
        if runner.given == runner.size {
            runner.left_at = Some(self.given);
        }
    }

    fn judge(&self) {
        let all: u64 = WEIGHTS.iter().map(|weight| u64::from(*weight)).sum();
        for (id, runner) in &self.runners {
            #[expect(clippy::cast_precision_loss, reason = "at most 10,000")]
            let off = (runner.given as f64 - runner.due).abs();
            // One unit more or less is no share.
            assert!(
                off <= (runner.due * 0.05).max(1.0),
                "{id}: {} of {}",
                runner.given,
                runner.due
            );
            let rounds = runner.size.div_ceil(u64::from(runner.weight)) + 1;
            let left_at = runner.left_at.unwrap_or(GIVEN);
            assert!(left_at <= (rounds * all).min(GIVEN), "{id} left at {left_at}");
            assert!(runner.left_at.is_some() || rounds * all > GIVEN, "{id} has units left");
        }
    }
}

/// From 10 to `largest`, each larger than the one before by the same factor.
fn sizes(largest: u64) -> [u64; 10] {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let factor = (largest as f64 / 10.0).powf(1.0 / 9.0);
    let mut exact = 10.0;
    std::array::from_fn(|_| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let size = f64::round(exact) as u64;
        exact *= factor;
        size
    })
}
