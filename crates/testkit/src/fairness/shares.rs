//! Shares: ten tenants with queues of very different sizes share one queue by weight.

use std::collections::BTreeMap;

use longshore_core::store::TenantChange;
use longshore_core::{Outcome, TenantId};

use super::{ALL, claim, finish, queue, session, tenant, unit, verify};
use crate::StoreFixture;

/// Units that are claimed in total.
const TOTAL_UNITS: u64 = 10_000;
/// Weights of the tenants, smallest queue first; not correlated with the sizes.
const WEIGHTS: [u32; 10] = [1, 4, 7, 10, 3, 6, 9, 2, 5, 8];
/// The sizes of claims, in a cycle: shares must not depend on them.
const CLAIM_SIZES: [u32; 6] = [1, 2, 5, 1, 16, 33];

/// Invariant `nobody_starves`: ten tenants with weights 1 to 10 and queues from 10 units to `largest`,
/// growing by a constant factor. Over 10,000 claimed units each tenant gets its share within 5 % of its
/// weight among the tenants with units left. No tenant waits for a larger one: its last unit is claimed
/// as soon as its weight allows.
pub async fn shares_follow_weights(fixture: &StoreFixture, largest: u64) {
    let mut check = ShareCheck::new(largest);
    check.fill(fixture).await;
    let session = session(fixture).await;
    for claim_size in CLAIM_SIZES.iter().cycle() {
        if check.claimed == TOTAL_UNITS {
            break;
        }
        let claim_size = u64::from(*claim_size).min(TOTAL_UNITS - check.claimed);
        let held = claim(fixture, session, u32::try_from(claim_size).unwrap()).await;
        assert_eq!(held.len() as u64, claim_size, "there are enough units for every claim");
        for one in &held {
            check.record_claim(&one.unit.tenant);
        }
        finish(fixture, session, &held, &Outcome::Done(None)).await;
    }
    check.assert_shares();
    verify(fixture).await;
}

struct TenantShare {
    weight: u32,
    size: u64,
    claimed: u64,
    /// The exact number of claimed units by weight, with fractions.
    expected: f64,
    /// How many units of all tenants had been claimed when its last unit was.
    drained_at: Option<u64>,
}

struct ShareCheck {
    shares: BTreeMap<TenantId, TenantShare>,
    claimed: u64,
}

impl ShareCheck {
    fn new(largest: u64) -> Self {
        let sizes = sizes(largest);
        assert!(sizes.iter().sum::<u64>() > TOTAL_UNITS, "too few units for 10,000 claims");
        let shares = sizes.into_iter().zip(WEIGHTS).map(|(size, weight)| {
            let share = TenantShare { weight, size, claimed: 0, expected: 0.0, drained_at: None };
            (tenant(&format!("weight-{weight}")), share)
        });
        Self { shares: shares.collect(), claimed: 0 }
    }

    async fn fill(&self, fixture: &StoreFixture) {
        let queue_name = queue("shared");
        for (id, share) in &self.shares {
            let weight = TenantChange { weight: Some(share.weight), ..TenantChange::default() };
            fixture.store.put_tenant(&ALL, id, weight).await.unwrap();
            let mut left = usize::try_from(share.size).unwrap();
            while left > 0 {
                let chunk = left.min(1_000);
                let units = (0..chunk).map(|_| unit(id, &queue_name)).collect();
                fixture.store.send(&ALL, units).await.unwrap();
                left -= chunk;
            }
        }
    }

    /// Counts one unit claimed from `id`. Every tenant with units left expected a part of it by weight.
    fn record_claim(&mut self, id: &TenantId) {
        self.claimed += 1;
        let has_units = |share: &&mut TenantShare| share.claimed < share.size;
        let weights: u32 = self.shares.values_mut().filter(has_units).map(|share| share.weight).sum();
        for share in self.shares.values_mut().filter(has_units) {
            share.expected += f64::from(share.weight) / f64::from(weights);
        }
        let share = self.shares.get_mut(id).unwrap();
        share.claimed += 1;
        if share.claimed == share.size {
            share.drained_at = Some(self.claimed);
        }
    }

    fn assert_shares(&self) {
        let total_weight: u64 = WEIGHTS.iter().map(|weight| u64::from(*weight)).sum();
        for (id, share) in &self.shares {
            #[expect(clippy::cast_precision_loss, reason = "at most 10,000")]
            let deviation = (share.claimed as f64 - share.expected).abs();
            // A deviation of one unit is allowed.
            assert!(
                deviation <= (share.expected * 0.05).max(1.0),
                "{id}: {} of {}",
                share.claimed,
                share.expected
            );
            let rounds = share.size.div_ceil(u64::from(share.weight)) + 1;
            let drained_at = share.drained_at.unwrap_or(TOTAL_UNITS);
            assert!(
                drained_at <= (rounds * total_weight).min(TOTAL_UNITS),
                "{id} was drained only at {drained_at}"
            );
            assert!(share.drained_at.is_some() || rounds * total_weight > TOTAL_UNITS, "{id} has units left");
        }
    }
}

/// Sizes from 10 to `largest`, growing by a constant factor.
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
