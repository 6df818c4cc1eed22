//! Laws of stride scheduling.

use longshore_core::store::ClaimRequest;
use longshore_core::stride_scheduler::{ClaimFilterHash, LaneShare, StrideState, TenantShare};
use longshore_core::{SessionId, TenantId};
use proptest::collection::vec;
use proptest::prelude::*;

/// A tenant: its weight, how many lanes it has, and whether they are new in each claim.
type Tenant = (u32, u32, bool);

/// How many units each tenant gets from claims of these sizes. No lane is ever empty.
fn serve(tenants: &[Tenant], claims: &[usize]) -> Vec<usize> {
    let claim = ClaimRequest::new(SessionId::new(), Vec::new(), 1);
    let filter = ClaimFilterHash::of(&claim);
    let (mut state, mut served) = (StrideState::default(), vec![0; tenants.len()]);
    for (nth, size) in (0_u32..).zip(claims) {
        let (mut shares, mut lanes) = (Vec::new(), Vec::new());
        for (at, (weight, count, renews)) in tenants.iter().enumerate() {
            shares.push(TenantShare::new(TenantId::new(format!("tenant-{at}")).unwrap(), *weight));
            let key = |lane| (if *renews { nth } else { 0 }, lane);
            let lane = |lane| LaneShare { available: 100, ..LaneShare::new(key(lane), at, 1) };
            lanes.extend((0..*count).map(lane));
        }
        let mut cursor = state.cursor(filter, claim.session, shares, lanes);
        for _ in 0..*size {
            let at = cursor.next_lane().unwrap();
            served[cursor.lanes()[at].tenant] += 1;
            cursor.serve(at);
        }
        state.save(filter, &cursor, &[]);
    }
    served
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Shares follow the tenants' weights, whatever number of lanes each has, old or new.
    #[test]
    fn a_tenants_share_does_not_depend_on_its_lanes(
        tenants in vec((1_u32..6, 1_u32..80, any::<bool>()), 2..6),
        claims in vec(1_usize..40, 1..40),
    ) {
        let served = serve(&tenants, &claims);
        let total: usize = claims.iter().sum();
        let weights: u32 = tenants.iter().map(|(weight, ..)| weight).sum();
        for ((weight, ..), served) in tenants.iter().zip(&served) {
            let share = total as f64 * f64::from(*weight) / f64::from(weights);
            let off = (*served as f64 - share).abs();
            prop_assert!(off <= tenants.len() as f64, "{served} instead of {share}: {tenants:?} {claims:?}");
        }
    }
}
