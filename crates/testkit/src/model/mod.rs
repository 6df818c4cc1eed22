//! Random histories, run on two stores that must agree.
//!
//! A [`StoreStep`] refers to items by small numbers, so that any list of steps is a valid history and
//! shrinks well. [`histories_agree`] compares states, counters and batch records after every step. The
//! order of tenants in a claim is not compared: a claim takes all ready units, or it takes those of one tenant.

#![expect(clippy::unwrap_used, reason = "a disagreement is reported by a panic")]

mod compare;
mod ledger;
mod runner;
mod unit_builder;

use longshore_core::Outcome;
use longshore_core::batch::{BatchAction, FailureLimit, OnThreshold};
use longshore_core::store::{Capacity, TenantChange};
use longshore_core::{Failure, FailureThreshold};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::StoreFixture;

pub use ledger::compare_ledgers;
pub use runner::histories_agree;

/// One step of a history. A number picks one of the items that exist when the step is applied.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are the arguments of the methods they are named after")]
pub enum StoreStep {
    Send(Vec<UnitSpec>),
    OpenBatch { batch: u8, threshold: Option<FailureThreshold>, callback: bool },
    AddToBatch { batch: u8, units: Vec<UnitSpec>, stale_cursor: bool },
    SealBatch { batch: u8 },
    ActOnBatch { batch: u8, action: BatchAction },
    OpenSession,
    CloseSession { session: u8 },
    Kill { session: u8 },
    Adopt { from: u8, to: u8 },
    Claim { session: u8, ahead: bool },
    Start { session: u8 },
    Release { session: u8 },
    Finish { lease: u8, outcome: Outcome },
    FinishAgain { lease: u8, outcome: Outcome },
    Checkpoint { lease: u8 },
    Cancel { unit: u8 },
    Retry { unit: u8 },
    PauseQueue(bool),
    Bound(Option<u64>),
    PutTenant { tenant: bool, change: TenantChange },
    RemoveTenant { tenant: bool },
    Advance { seconds: u16 },
    Prune { seconds: u16 },
}

/// A unit to be sent.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of `NewUnit`")]
pub struct UnitSpec {
    pub tenant: bool,
    pub key: Option<u8>,
    pub keep_key: bool,
    pub delay: Option<u16>,
    pub deadline: Option<u16>,
    pub after: Option<u8>,
    pub release: bool,
    pub cap: bool,
    pub attempts: u32,
    pub priority: u8,
    pub fails_when_lost: bool,
}

/// Runs `cases` random histories on fresh stores from `make`: the oracle and the subject. A
/// disagreement is shrunk and reported by a panic.
pub fn compare_stores<F: Future<Output = (StoreFixture, StoreFixture)>>(cases: u32, make: impl Fn() -> F) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&history(), |history| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(async {
            let (oracle, subject) = make().await;
            histories_agree(oracle, subject, &history).await;
        });
        Ok(())
    });
    outcome.unwrap();
}

/// Histories of up to 60 steps.
pub fn history() -> impl Strategy<Value = Vec<StoreStep>> {
    vec(step(), 1..60)
}

fn step() -> impl Strategy<Value = StoreStep> {
    prop_oneof![
        8 => vec(spec(), 1..5).prop_map(StoreStep::Send),
        12 => worker_step(),
        6 => batch_step(),
        5 => admin_step(),
    ]
}

fn worker_step() -> impl Strategy<Value = StoreStep> {
    prop_oneof![
        2 => Just(StoreStep::OpenSession),
        1 => any::<u8>().prop_map(|session| StoreStep::CloseSession { session }),
        2 => any::<u8>().prop_map(|session| StoreStep::Kill { session }),
        1 => any::<(u8, u8)>().prop_map(|(from, to)| StoreStep::Adopt { from, to }),
        6 => any::<(u8, bool)>().prop_map(|(session, ahead)| StoreStep::Claim { session, ahead }),
        2 => any::<u8>().prop_map(|session| StoreStep::Start { session }),
        1 => any::<u8>().prop_map(|session| StoreStep::Release { session }),
        14 => (any::<u8>(), outcome()).prop_map(|(lease, outcome)| StoreStep::Finish { lease, outcome }),
        2 => (any::<u8>(), outcome())
            .prop_map(|(lease, outcome)| StoreStep::FinishAgain { lease, outcome }),
        1 => any::<u8>().prop_map(|lease| StoreStep::Checkpoint { lease }),
    ]
}

fn batch_step() -> impl Strategy<Value = StoreStep> {
    let batch = 0..3_u8;
    let limit = prop_oneof![
        (1..4_u64).prop_map(FailureLimit::Units),
        (10..60_u8).prop_map(|percent| FailureLimit::Percent(f64::from(percent))),
    ];
    let then = prop_oneof![Just(OnThreshold::Pause), Just(OnThreshold::Fail)];
    let threshold = (limit, then).prop_map(|(limit, then)| FailureThreshold { limit, then });
    let open = (batch.clone(), proptest::option::of(threshold), any::<bool>());
    let add = (batch.clone(), vec(spec(), 0..5), proptest::bool::weighted(0.1));
    prop_oneof![
        3 => open.prop_map(|(batch, threshold, callback)| {
            StoreStep::OpenBatch { batch, threshold, callback }
        }),
        6 => add.prop_map(|(batch, units, stale_cursor)| {
            StoreStep::AddToBatch { batch, units, stale_cursor }
        }),
        3 => batch.clone().prop_map(|batch| StoreStep::SealBatch { batch }),
        4 => (batch, action()).prop_map(|(batch, action)| StoreStep::ActOnBatch { batch, action }),
    ]
}

fn admin_step() -> impl Strategy<Value = StoreStep> {
    prop_oneof![
        3 => any::<u8>().prop_map(|unit| StoreStep::Cancel { unit }),
        4 => any::<u8>().prop_map(|unit| StoreStep::Retry { unit }),
        1 => any::<bool>().prop_map(StoreStep::PauseQueue),
        1 => proptest::option::of(2..20_u64).prop_map(StoreStep::Bound),
        2 => (any::<bool>(), tenant_change())
            .prop_map(|(tenant, change)| StoreStep::PutTenant { tenant, change }),
        1 => any::<bool>().prop_map(|tenant| StoreStep::RemoveTenant { tenant }),
        5 => (1..200_u16).prop_map(|seconds| StoreStep::Advance { seconds }),
        1 => (1..400_u16).prop_map(|seconds| StoreStep::Prune { seconds }),
    ]
}

fn tenant_change() -> impl Strategy<Value = TenantChange> {
    use proptest::option::of;
    let cap = of(of(1..5_u32));
    let capacity = of(of(2..20_u64)).prop_map(|bound| {
        let units = bound?;
        Some(Capacity { units, bytes: units.map(|units| units * 2) })
    });
    (of(1..4_u32), cap, capacity, of(any::<bool>())).prop_map(|(weight, cap, capacity, suspended)| {
        TenantChange { weight, cap, capacity, suspended, allowed_kinds: None }
    })
}

fn action() -> impl Strategy<Value = BatchAction> {
    prop_oneof![
        Just(BatchAction::Pause { reason: "by hand".into() }),
        Just(BatchAction::Resume),
        Just(BatchAction::Cancel),
        Just(BatchAction::Fail { reason: "by hand".into() }),
        Just(BatchAction::RetryFailed),
        Just(BatchAction::RetryFailed),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    use std::time::Duration;
    let failure = || Failure::new("model", "as the history says");
    let after = proptest::option::of((0..60_u64).prop_map(Duration::from_secs));
    prop_oneof![
        5 => Just(Outcome::Done(Some(b"{}".as_slice().into()))),
        3 => after.prop_map(move |after| Outcome::Retry { failure: failure(), after }),
        2 => (0..60_u64).prop_map(|seconds| Outcome::Snooze(Duration::from_secs(seconds))),
        3 => Just(Outcome::Fail(failure())),
        1 => Just(Outcome::Cancel),
        1 => Just(Outcome::Interrupted),
    ]
}

fn spec() -> impl Strategy<Value = UnitSpec> {
    use proptest::option::weighted;
    let waits = (weighted(0.2, 1..100_u16), weighted(0.2, 1..200_u16));
    let after = (weighted(0.25, any::<u8>()), any::<bool>());
    let key = (weighted(0.2, 0..3_u8), any::<bool>());
    let rarely = || proptest::bool::weighted(0.2);
    let rest = (any::<bool>(), rarely(), 1..4_u32, 1..10_u8, rarely());
    (waits, after, key, rest).prop_map(|(waits, after, key, rest)| UnitSpec {
        tenant: rest.0,
        key: key.0,
        keep_key: key.1,
        delay: waits.0,
        deadline: waits.1,
        after: after.0,
        release: after.1,
        cap: rest.1,
        attempts: rest.2,
        priority: rest.3,
        fails_when_lost: rest.4,
    })
}
