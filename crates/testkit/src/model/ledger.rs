//! Random histories of a ledger, run on two stores that must agree.
//!
//! As in [`super`], a step refers to items by small numbers. After every step both stores must have
//! given the same answer, hold the same calls, months and sums, and pass `verify`.

use std::time::Duration;

use longshore_accounts::{
    BucketRequest, Budget, CallEnd, CallRecord, CallStatus, CostCorrection, NewCall, UsageBy, UsageFilter,
};
use longshore_core::failure_detector::StalledSession;
use longshore_core::worker_session::NewSession;
use longshore_core::{CallId, ProfileName, Scope, SessionId, UnitId};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::runner::{pick, tenant_of};
use crate::StoreFixture;

/// One step of a ledger's history.
#[derive(Debug, Clone)]
enum LedgerStep {
    Admit(Vec<CallSpec>),
    Record(Vec<(CallSpec, Option<EndSpec>)>),
    OpenSession,
    CloseSession(u8),
    Kill(u8),
    Adopt { from: u8, to: u8 },
    Budget { tenant: bool, tokens: Option<u64> },
    Recost { call: u8, cost: i64 },
    Draw(Vec<(bool, f64)>),
    Advance { hours: u16 },
}

/// A call. Its numbers come from a small range, so that a history refers to the same calls repeatedly.
#[derive(Debug, Clone)]
struct CallSpec {
    call: u8,
    request: u8,
    tenant: bool,
    unit: Option<u8>,
    session: Option<u8>,
    tokens: u64,
}

#[derive(Debug, Clone)]
struct EndSpec {
    success: bool,
    tokens: u64,
    cost: i64,
}

/// The ids of a history, shared by both stores.
struct HistoryIds {
    calls: Vec<CallId>,
    units: Vec<UnitId>,
    sessions: Vec<SessionId>,
}

/// Runs `cases` random histories on fresh stores from `make`: the oracle and the subject.
pub fn compare_ledgers<F: Future<Output = (StoreFixture, StoreFixture)>>(cases: u32, make: impl Fn() -> F) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(step(), 1..50), |history| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(async {
            let (oracle, subject) = make().await;
            run_history(&oracle, &subject, &history).await;
        });
        Ok(())
    });
    outcome.unwrap();
}

async fn run_history(oracle: &StoreFixture, subject: &StoreFixture, history: &[LedgerStep]) {
    let calls = (0..8).map(|_| CallId::new()).collect();
    let units = vec![UnitId::new(), UnitId::new()];
    let mut ids = HistoryIds { calls, units, sessions: Vec::new() };
    for step in history {
        if matches!(step, LedgerStep::OpenSession) {
            ids.sessions.push(SessionId::new());
        }
        let (expected, actual) = (apply(oracle, &ids, step).await, apply(subject, &ids, step).await);
        assert_eq!(expected, actual, "the answers to {step:?} differ");
        assert_eq!(snapshot(oracle).await, snapshot(subject).await, "the ledgers differ after {step:?}");
    }
}

/// Applies a step and returns the answer; `None` is an error, whatever its text.
async fn apply(fixture: &StoreFixture, ids: &HistoryIds, step: &LedgerStep) -> Option<String> {
    let StoreFixture { store, ledger, clock, .. } = fixture;
    let session = |n: &u8| pick(&ids.sessions, *n);
    match step {
        LedgerStep::Admit(calls) => {
            let calls = calls.iter().map(|spec| ids.call(spec)).collect();
            ledger.admit_calls(calls).await.ok().map(|answers| format!("{answers:#?}"))
        }
        LedgerStep::Record(records) => {
            let records = records.iter().map(|(spec, end)| ids.record(spec, end.as_ref()));
            debug_if_ok(ledger.record_calls(records.collect()).await)
        }
        LedgerStep::OpenSession => {
            debug_if_ok(store.open_session(NewSession::new(*ids.sessions.last()?, "")).await)
        }
        LedgerStep::CloseSession(n) => debug_if_ok(store.close_session(session(n)?).await),
        LedgerStep::Kill(n) => {
            debug_if_ok(store.reclaim(&[StalledSession { session: session(n)?, beats: 0 }]).await)
        }
        LedgerStep::Adopt { from, to } => debug_if_ok(store.adopt(session(from)?, session(to)?).await),
        LedgerStep::Budget { tenant, tokens } => {
            let budget = tokens.map(|tokens| Budget { tokens: Some(tokens), cost_picos: None, warn_at: 0.5 });
            debug_if_ok(ledger.put_budget(&Scope::All, &tenant_of(*tenant), budget).await)
        }
        LedgerStep::Recost { call, cost } => {
            let recost = CostCorrection { id: pick(&ids.calls, *call)?, cost_picos: *cost };
            debug_if_ok(ledger.correct_costs(&Scope::All, vec![recost]).await)
        }
        LedgerStep::Draw(draws) => {
            let draws = draws.iter().map(|(bucket, want)| bucket_request(*bucket, *want)).collect();
            debug_if_ok(ledger.draw(draws).await)
        }
        LedgerStep::Advance { hours } => {
            clock.advance(Duration::from_secs(3600 * u64::from(*hours)));
            None
        }
    }
}

fn debug_if_ok<T: std::fmt::Debug>(answer: longshore_core::Result<T>) -> Option<String> {
    answer.ok().map(|answer| format!("{answer:?}"))
}

/// All readable data of the ledger.
async fn snapshot(fixture: &StoreFixture) -> String {
    let (ledger, all) = (&fixture.ledger, UsageFilter::default());
    let mut text = format!("{:#?}", ledger.calls(&Scope::All, &all, None, 100).await.unwrap());
    for tenant in [tenant_of(false), tenant_of(true)] {
        text += &format!("\n{:?}", ledger.budget(&Scope::All, &tenant).await.unwrap());
    }
    for by in [UsageBy::Tenant, UsageBy::Model, UsageBy::Day, UsageBy::Profile] {
        text += &format!("\n{:?}", ledger.usage(&Scope::All, &all, by).await.unwrap());
    }
    assert_eq!(fixture.store.verify().await.unwrap(), []);
    text
}

fn bucket_request(bucket: bool, want: f64) -> BucketRequest {
    let bucket = if bucket { "a" } else { "b" }.to_owned();
    BucketRequest { bucket, per_minute: 1.0, capacity: 10.0, amount: want, minimum: want.min(3.0) }
}

impl HistoryIds {
    fn call(&self, spec: &CallSpec) -> NewCall {
        NewCall {
            id: self.calls[usize::from(spec.call) % self.calls.len()],
            request_id: spec.request.to_string(),
            tenant: tenant_of(spec.tenant),
            profile: ProfileName::new(format!("p{}", spec.request)).unwrap(),
            provider: "model".to_owned(),
            model: format!("m{}", spec.call % 2),
            unit: spec.unit.and_then(|n| pick(&self.units, n)),
            batch: None,
            session: spec.session.and_then(|n| pick(&self.sessions, n)),
            worker: String::new(),
            reserve_tokens: spec.tokens,
            reserve_picos: 7,
        }
    }

    fn record(&self, spec: &CallSpec, end: Option<&EndSpec>) -> CallRecord {
        let call = self.call(spec);
        let end = end.map(|end| CallEnd {
            status: if end.success { CallStatus::Success } else { CallStatus::Error },
            tokens_in: end.tokens,
            tokens_out: 1,
            cost_picos: end.cost,
            estimated: !end.success,
            ..call.lost_end()
        });
        CallRecord { call, end }
    }
}

fn step() -> impl Strategy<Value = LedgerStep> {
    let end = (any::<bool>(), 0..60_u64, 0..9_i64).prop_map(|(success, tokens, cost)| EndSpec {
        success,
        tokens,
        cost,
    });
    let budget = (any::<bool>(), of(0..200_u64));
    prop_oneof![
        8 => vec(spec(), 1..4).prop_map(LedgerStep::Admit),
        8 => vec((spec(), of(end)), 1..4).prop_map(LedgerStep::Record),
        3 => Just(LedgerStep::OpenSession),
        1 => any::<u8>().prop_map(LedgerStep::CloseSession),
        2 => any::<u8>().prop_map(LedgerStep::Kill),
        1 => any::<(u8, u8)>().prop_map(|(from, to)| LedgerStep::Adopt { from, to }),
        3 => budget.prop_map(|(tenant, tokens)| LedgerStep::Budget { tenant, tokens }),
        2 => (any::<u8>(), 0..9_i64).prop_map(|(call, cost)| LedgerStep::Recost { call, cost }),
        2 => vec((any::<bool>(), -3.0..12.0_f64), 1..4).prop_map(LedgerStep::Draw),
        3 => (1..400_u16).prop_map(|hours| LedgerStep::Advance { hours }),
    ]
}

fn spec() -> impl Strategy<Value = CallSpec> {
    let names = (any::<u8>(), 0..3_u8, any::<bool>());
    (names, of(any::<u8>()), of(any::<u8>()), 0..60_u64).prop_map(
        |((call, request, tenant), unit, session, tokens)| CallSpec {
            call,
            request,
            tenant,
            unit,
            session,
            tokens,
        },
    )
}
