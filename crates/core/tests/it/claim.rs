//! Which units a claim takes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use longshore_core::claim::FitDecision::{Expire, LeaveLane, Park, Prefetch, Skip, Start, Stop};
use longshore_core::claim::{ClaimBudget, FitDecision, UnitNeeds};
use longshore_core::store::{ClaimRequest, Queues};
use longshore_core::unit::ConcurrencyCap;
use longshore_core::{QueueName, Scope, SessionId, TenantId};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::unit_state::NOW;

/// A unit: slots, GPUs, the limit of its cap, whether its deadline has passed.
type Candidate = (u32, u32, Option<u32>, bool);

const PLAIN: Candidate = (1, 0, None, false);

/// A claim with these free and total slots, free and total GPUs, and prefetch.
fn claim(free: u32, slots: u32, gpus: (u32, u32), ahead: u32) -> ClaimRequest {
    let gpus_of = |n| if n == 0 { BTreeMap::new() } else { BTreeMap::from([("gpu".to_owned(), n)]) };
    ClaimRequest {
        session: SessionId::new(),
        scope: Scope::All,
        queues: Queues::All,
        batch: None,
        kinds: Vec::new(),
        free_slots: free,
        start_ahead: 0,
        slots,
        resources: gpus_of(gpus.0),
        total_resources: gpus_of(gpus.1),
        prefetch: ahead,
        holds_nothing: true,
        excluded_tenants: Vec::new(),
    }
}

/// Calls `decide` with the needs of a candidate, of which `leased` units hold the cap key.
fn with_needs<T>(
    (slots, gpus, limit, late): Candidate,
    decide: impl FnOnce(&UnitNeeds<'_>) -> Result<T, Infallible>,
) -> T {
    let resources: BTreeMap<_, _> = (gpus > 0).then(|| ("gpu".to_owned(), gpus)).into_iter().collect();
    let cap = limit.map(|limit| ConcurrencyCap { key: "host".to_owned(), limit });
    let deadline = late.then(|| NOW - Duration::from_secs(1));
    let Ok(decision) = decide(&UnitNeeds {
        slots,
        resources: &resources,
        cap: cap.as_ref(),
        deadline,
        fails_if_lost: false,
    });
    decision
}

fn admit(budget: &mut ClaimBudget<'_>, unit: Candidate, lane_capped: bool) -> FitDecision {
    with_needs(unit, |needs| budget.admit(needs, lane_capped, NOW, || Ok(Some(1))))
}

fn decisions(claim: &ClaimRequest, lane_capped: bool, units: &[Candidate]) -> (Vec<FitDecision>, bool) {
    let mut budget = ClaimBudget::new(claim);
    let decisions = units.iter().map(|unit| admit(&mut budget, *unit, lane_capped)).collect();
    (decisions, budget.claimed.heavy_waiting)
}

#[test]
fn each_candidate_gets_its_decision() {
    let worker = claim(2, 4, (1, 2), 1);
    let full = claim(0, 4, (1, 2), 1);
    let one = claim(1, 4, (1, 2), 1);
    let ahead = ClaimRequest { start_ahead: 1, ..claim(2, 4, (0, 0), 0) };
    let gpu = |n| (1, n, None, false);
    for (what, claim, capped, units, expected) in [
        ("slots, then ahead", &worker, false, vec![PLAIN; 4], vec![Start, Start, Prefetch, LeaveLane]),
        ("not ahead from a capped lane", &worker, true, vec![PLAIN; 3], vec![Start, Start, LeaveLane]),
        ("started ahead", &ahead, false, vec![PLAIN; 3], vec![Start, Start, LeaveLane]),
        ("not ahead from a capped lane", &ahead, true, vec![PLAIN; 2], vec![Start, LeaveLane]),
        ("not ahead with a cap", &ahead, false, vec![PLAIN, (1, 0, Some(9), false)], vec![Start, Skip]),
        ("not ahead if heavy", &ahead, false, vec![(2, 0, None, false)], vec![Stop]),
        ("never on this worker", &worker, false, vec![(5, 0, None, false), gpu(3)], vec![Skip; 2]),
        ("too heavy now", &worker, false, vec![(3, 0, None, false)], vec![Stop]),
        ("a resource in use", &worker, false, vec![gpu(1), gpu(1)], vec![Start, Stop]),
        ("late", &worker, false, vec![(5, 0, Some(1), true)], vec![Expire]),
        ("caps", &worker, false, vec![(1, 0, Some(1), false), (1, 0, Some(2), false)], vec![Park, Start]),
        (
            "a cap is not taken ahead",
            &one,
            false,
            vec![PLAIN, (1, 0, Some(2), false), PLAIN],
            vec![Start, Skip, Prefetch],
        ),
        (
            "a resource is not taken ahead",
            &one,
            false,
            vec![PLAIN, gpu(1), PLAIN],
            vec![Start, Skip, Prefetch],
        ),
        ("a cap is not overtaken for ever", &full, false, vec![(1, 0, Some(2), false)], vec![Stop]),
        ("a resource is not overtaken for ever", &full, false, vec![gpu(1)], vec![Stop]),
        ("a resource in use, no slot free", &full, false, vec![gpu(2), PLAIN], vec![Stop, Prefetch]),
        ("heavy, no slot free", &full, false, vec![(2, 0, None, false)], vec![Stop]),
    ] {
        let waits = expected.contains(&Stop);
        assert_eq!(decisions(claim, capped, &units), (expected, waits), "{what}");
    }
}

#[test]
fn a_key_that_another_transaction_changes_is_skipped() {
    let worker = claim(2, 4, (0, 0), 0);
    let mut budget = ClaimBudget::new(&worker);
    let unit = (1, 0, Some(9), false);
    assert_eq!(with_needs(unit, |needs| budget.admit(needs, false, NOW, || Ok(None))), Skip);
    assert_eq!(with_needs(unit, |needs| budget.admit_alone(needs, NOW, || Ok(None))), Skip);
}

#[test]
fn a_unit_that_runs_alone_goes_to_a_worker_that_holds_none() {
    let alone = |claim: &ClaimRequest, unit| {
        let mut budget = ClaimBudget::new(claim);
        let fit = with_needs(unit, |needs| budget.admit_alone(needs, NOW, || Ok(Some(1))));
        (fit, budget.claimed.alone_waiting)
    };
    let idle = claim(4, 4, (0, 0), 0);
    let busy = ClaimRequest { holds_nothing: false, ..idle.clone() };
    assert_eq!(alone(&idle, PLAIN), (Start, false));
    assert_eq!(alone(&busy, PLAIN), (Stop, true));
    assert_eq!(alone(&busy, (5, 0, None, false)), (Skip, false), "it never fits");
    assert_eq!(alone(&idle, (1, 0, Some(1), false)), (Skip, false), "its cap is reached");
    assert_eq!(alone(&busy, (1, 0, None, true)), (Expire, false));
}

#[test]
fn a_claim_covers_its_scope_and_queues_but_not_the_tenants_it_excludes() {
    let any = claim(1, 1, (0, 0), 0);
    assert!(any.covers_lane("default", "acme") && any.covers_batch(None));
    let acme = TenantId::new("acme").unwrap();
    let own = ClaimRequest { scope: Scope::Tenant(acme.clone()), ..any.clone() };
    assert!(own.covers_lane("default", "acme") && !own.covers_lane("default", "other"));
    let named = ClaimRequest { queues: Queues::Named(vec![QueueName::new("mail").unwrap()]), ..any.clone() };
    assert!(named.covers_lane("mail", "acme") && !named.covers_lane("default", "acme"));
    assert!(!ClaimRequest { excluded_tenants: vec![acme], ..any }.covers_lane("default", "acme"));
}

proptest! {
    #[test]
    fn no_claim_takes_more_than_the_worker_has(
        (free, more, gpus, more_gpus, ahead) in (0..6_u32, 0..4_u32, 0..4_u32, 0..3_u32, 0..4_u32),
        lane_capped: bool,
        units in vec((1..6_u32, 0..4_u32, of(0..4_u32), proptest::bool::weighted(0.1)), 0..20),
    ) {
        let claim = claim(free, free + more, (gpus, gpus + more_gpus), ahead);
        let (decisions, heavy_waiting) = decisions(&claim, lane_capped, &units);
        let of = |wanted| units.iter().zip(&decisions).filter(move |(_, fit)| **fit == wanted);
        prop_assert!(of(Start).map(|(unit, _)| unit.0).sum::<u32>() <= free);
        prop_assert!(of(Start).map(|(unit, _)| unit.1).sum::<u32>() <= gpus);
        let may_prefetch = if lane_capped { 0 } else { ahead as usize };
        prop_assert!(of(Prefetch).count() <= may_prefetch);
        for (unit, fit) in units.iter().zip(&decisions) {
            let (slots, gpus_needed, limit, late) = *unit;
            let suits = slots <= free + more && gpus_needed <= gpus + more_gpus;
            prop_assert_eq!(late, *fit == Expire);
            prop_assert!(suits || matches!(fit, Skip | Expire));
            prop_assert_eq!(*fit == Park, suits && !late && limit.is_some_and(|limit| limit <= 1));
            prop_assert!(*fit != Prefetch || (slots, gpus_needed, limit) == (1, 0, None));
        }
        prop_assert_eq!(heavy_waiting, decisions.contains(&Stop));
    }
}

#[test]
fn a_unit_that_fails_if_it_is_lost_is_not_started_ahead() {
    let resources = BTreeMap::new();
    let fragile =
        UnitNeeds { slots: 1, resources: &resources, cap: None, deadline: None, fails_if_lost: true };
    let request = ClaimRequest { start_ahead: 1, ..claim(2, 4, (0, 0), 0) };
    let mut budget = ClaimBudget::new(&request);
    let mut admit = || {
        budget.admit(&fragile, false, longshore_core::Timestamp::ZERO, || Ok::<_, Infallible>(None)).unwrap()
    };
    assert_eq!([admit(), admit()], [FitDecision::Start, FitDecision::Skip]);
}
