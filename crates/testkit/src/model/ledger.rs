//! Random histories of a ledger, run on two stores that must agree.
//!
//! As in [`super`], a step names things by small numbers. After every step both stores must have
//! given the same answer, hold the same calls, months and sums, and find their books in order.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_core::ledger::{
    Budget, CallEnd, CallRecord, CallStatus, Draw, NewCall, Recost, UsageBy, UsageFilter,
};
use longshore_core::session::NewSession;
use longshore_core::stall::Dead;
use longshore_core::{CallId, ProfileName, Scope, SessionId, UnitId};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::runner::{choose, tenant_of};
use crate::World;

/// One step of a ledger's history.
#[derive(Debug, Clone)]
enum Step {
    Admit(Vec<Sketch>),
    Record(Vec<(Sketch, Option<End>)>),
    OpenSession,
    CloseSession(u8),
    Kill(u8),
    Adopt { from: u8, to: u8 },
    Budget { tenant: bool, tokens: Option<u64> },
    Recost { call: u8, cost: i64 },
    Draw(Vec<(bool, f64)>),
    Advance { hours: u16 },
}

/// A call, chosen among a few so that histories speak of the same ones again.
#[derive(Debug, Clone)]
struct Sketch {
    call: u8,
    request: u8,
    tenant: bool,
    unit: Option<u8>,
    session: Option<u8>,
    tokens: u64,
}

#[derive(Debug, Clone)]
struct End {
    well: bool,
    tokens: u64,
    cost: i64,
}

/// Who plays in a history: the same in both worlds.
struct Cast {
    calls: Vec<CallId>,
    units: Vec<UnitId>,
    sessions: Vec<SessionId>,
}

/// Runs `cases` random histories on fresh worlds from `make`: the oracle's and the subject's.
pub fn compare_ledgers<F: Future<Output = (World, World)>>(cases: u32, make: impl Fn() -> F) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(step(), 1..50), |history| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(async {
            let (oracle, subject) = make().await;
            agree(&oracle, &subject, &history).await;
        });
        Ok(())
    });
    outcome.unwrap();
}

async fn agree(oracle: &World, subject: &World, history: &[Step]) {
    let ids = |count| (0..count).map(|_| CallId::new()).collect();
    let units = vec![UnitId::new(), UnitId::new()];
    let mut cast = Cast { calls: ids(8), units, sessions: Vec::new() };
    for step in history {
        if matches!(step, Step::OpenSession) {
            cast.sessions.push(SessionId::new());
        }
        let (ours, theirs) = (take(oracle, &cast, step).await, take(subject, &cast, step).await);
        assert_eq!(ours, theirs, "the answers to {step:?}");
        assert_eq!(books(oracle).await, books(subject).await, "the books after {step:?}");
    }
}

/// Takes a step and says what the answer was; `None` is an error, whatever its words.
async fn take(world: &World, cast: &Cast, step: &Step) -> Option<String> {
    let World { store, ledger, clock, .. } = world;
    let session = |n: &u8| choose(&cast.sessions, *n);
    match step {
        Step::Admit(calls) => {
            let calls = calls.iter().map(|sketch| cast.call(sketch)).collect();
            ledger.admit_calls(calls).await.ok().map(|answers| format!("{answers:#?}"))
        }
        Step::Record(records) => {
            let records = records.iter().map(|(sketch, end)| cast.record(sketch, end.as_ref()));
            told(ledger.record_calls(records.collect()).await)
        }
        Step::OpenSession => told(store.open_session(new_session(*cast.sessions.last()?)).await),
        Step::CloseSession(n) => told(store.close_session(session(n)?).await),
        Step::Kill(n) => told(store.reclaim(&[Dead { session: session(n)?, beats: 0 }]).await),
        Step::Adopt { from, to } => told(store.adopt(session(from)?, session(to)?).await),
        Step::Budget { tenant, tokens } => {
            let budget = tokens.map(|tokens| Budget {
                tokens: Some(tokens),
                cost_picos: None,
                warn_at: 0.5,
            });
            told(ledger.put_budget(&Scope::All, &tenant_of(*tenant), budget).await)
        }
        Step::Recost { call, cost } => {
            let recost = Recost { id: choose(&cast.calls, *call)?, cost_picos: *cost };
            told(ledger.recost(&Scope::All, vec![recost]).await)
        }
        Step::Draw(draws) => {
            let draws = draws.iter().map(|(bucket, want)| draw(*bucket, *want)).collect();
            told(ledger.draw(draws).await)
        }
        Step::Advance { hours } => {
            clock.advance(Duration::from_secs(3600 * u64::from(*hours)));
            None
        }
    }
}

fn told<T: std::fmt::Debug>(answer: longshore_core::Result<T>) -> Option<String> {
    answer.ok().map(|answer| format!("{answer:?}"))
}

/// Everything that can be seen.
async fn books(world: &World) -> String {
    let (ledger, all) = (&world.ledger, UsageFilter::default());
    let mut told = format!("{:#?}", ledger.calls(&Scope::All, &all, None, 100).await.unwrap());
    for tenant in [tenant_of(false), tenant_of(true)] {
        told += &format!("\n{:?}", ledger.budget(&Scope::All, &tenant).await.unwrap());
    }
    for by in [UsageBy::Tenant, UsageBy::Model, UsageBy::Day, UsageBy::Profile] {
        told += &format!("\n{:?}", ledger.usage(&Scope::All, &all, by).await.unwrap());
    }
    assert_eq!(world.store.verify().await.unwrap(), []);
    told
}

fn new_session(id: SessionId) -> NewSession {
    let (label, version, kinds) = (String::new(), String::new(), BTreeMap::new());
    NewSession { id, label, version, kinds, slots: 1, ttl: Duration::from_secs(15) }
}

fn draw(bucket: bool, want: f64) -> Draw {
    let bucket = if bucket { "a" } else { "b" }.to_owned();
    Draw { bucket, per_minute: 1.0, capacity: 10.0, want, at_least: want.min(3.0) }
}

impl Cast {
    fn call(&self, sketch: &Sketch) -> NewCall {
        NewCall {
            id: self.calls[usize::from(sketch.call) % self.calls.len()],
            request_id: sketch.request.to_string(),
            tenant: tenant_of(sketch.tenant),
            profile: ProfileName::new(format!("p{}", sketch.request)).unwrap(),
            provider: "model".to_owned(),
            model: format!("m{}", sketch.call % 2),
            unit: sketch.unit.and_then(|n| choose(&self.units, n)),
            batch: None,
            session: sketch.session.and_then(|n| choose(&self.sessions, n)),
            worker: String::new(),
            reserve_tokens: sketch.tokens,
            reserve_picos: 7,
        }
    }

    fn record(&self, sketch: &Sketch, end: Option<&End>) -> CallRecord {
        let call = self.call(sketch);
        let end = end.map(|end| CallEnd {
            status: if end.well { CallStatus::Success } else { CallStatus::Error },
            tokens_in: end.tokens,
            tokens_out: 1,
            cost_picos: end.cost,
            estimated: !end.well,
            ..call.maybe_billed()
        });
        CallRecord { call, end }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let end = (any::<bool>(), 0..60_u64, 0..9_i64).prop_map(|(well, tokens, cost)| End {
        well,
        tokens,
        cost,
    });
    let budget = (any::<bool>(), of(0..200_u64));
    prop_oneof![
        8 => vec(sketch(), 1..4).prop_map(Step::Admit),
        8 => vec((sketch(), of(end)), 1..4).prop_map(Step::Record),
        3 => Just(Step::OpenSession),
        1 => any::<u8>().prop_map(Step::CloseSession),
        2 => any::<u8>().prop_map(Step::Kill),
        1 => any::<(u8, u8)>().prop_map(|(from, to)| Step::Adopt { from, to }),
        3 => budget.prop_map(|(tenant, tokens)| Step::Budget { tenant, tokens }),
        2 => (any::<u8>(), 0..9_i64).prop_map(|(call, cost)| Step::Recost { call, cost }),
        2 => vec((any::<bool>(), -3.0..12.0_f64), 1..4).prop_map(Step::Draw),
        3 => (1..400_u16).prop_map(|hours| Step::Advance { hours }),
    ]
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let names = (any::<u8>(), 0..3_u8, any::<bool>());
    (names, of(any::<u8>()), of(any::<u8>()), 0..60_u64).prop_map(
        |((call, request, tenant), unit, session, tokens)| Sketch {
            call,
            request,
            tenant,
            unit,
            session,
            tokens,
        },
    )
}
