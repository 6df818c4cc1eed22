//! SQL effects: they commit with the unit's finish, or not at all. Only for stores in an SQL database;
//! each case has a table `account(id, amount)` with a row `(1, 100)`.

use longshore_core::outcome::Params;
use longshore_core::store::{CheckpointRequest, FinishRequest, FinishResult, LeasedUnit};
use longshore_core::worker_session::Lease;
use longshore_core::{Effect, Error, NewBatch, Outcome, Payload, Result, SessionId, SqlValue, UnitState};
use tokio::task::JoinSet;

use super::helpers::*;
use crate::{SqlStoreFixture, StoreFixture};

fn effect(sql: &str, values: Vec<SqlValue>, expected_rows: Option<u64>) -> Effect {
    Effect { sql: sql.to_owned(), params: Params::Ordered(values), expected_rows }
}

fn add_to_amount(amount: i64) -> Effect {
    let sql = "UPDATE account SET amount = amount + ?1 WHERE id = ?2";
    effect(sql, vec![SqlValue::Int(amount), SqlValue::Int(1)], Some(1))
}

async fn finish(
    fixture: &StoreFixture,
    session: SessionId,
    lease: Lease,
    outcome: Outcome,
    effects: Vec<Effect>,
) -> FinishResult {
    let finish = FinishRequest { effects, ..FinishRequest::new(lease, outcome) };
    fixture.store.finish(session, vec![finish]).await.unwrap().remove(0)
}

fn amount(sql: &dyn SqlStoreFixture) -> i64 {
    sql.query_i64("SELECT amount FROM account WHERE id = 1")
}

pub(super) async fn effects_exactly_once(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    for _ in 0..3 {
        let answer = finish(fixture, session, lease, done(), vec![add_to_amount(5), add_to_amount(2)]).await;
        assert_eq!(answer, FinishResult::Recorded(UnitState::Done));
    }
    assert_eq!(fixture.state(id).await, UnitState::Done);
    assert_eq!(amount(sql), 107, "repeated finishes have no effects");
}

pub(super) async fn a_stale_holders_effects_do_not_happen(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    fixture.kill(session).await;
    let answer = finish(fixture, session, lease, done(), vec![add_to_amount(5)]).await;
    assert_eq!((answer, amount(sql)), (FinishResult::LeaseLost, 100));
}

pub(super) async fn a_failing_effect_undoes_those_before_it(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    let broken = effect("UPDATE nothing SET x = 1", vec![], None);
    let answer = finish(fixture, session, lease, done(), vec![add_to_amount(5), broken]).await;
    assert!(matches!(answer, FinishResult::EffectFailed(_)), "{answer:?}");
    assert_eq!((amount(sql), fixture.state(id).await), (100, UnitState::Leased));
    let answer = finish(fixture, session, lease, done(), vec![add_to_amount(1)]).await;
    assert_eq!(answer, FinishResult::Recorded(UnitState::Done), "it was still held");
    assert_eq!(amount(sql), 101);
}

pub(super) async fn another_number_of_rows_undoes_the_effects(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    let missing = effect("UPDATE account SET amount = 0 WHERE id = 99", vec![], Some(1));
    let answer = finish(fixture, session, lease, done(), vec![add_to_amount(5), missing]).await;
    assert!(matches!(answer, FinishResult::EffectFailed(_)), "{answer:?}");
    assert_eq!(amount(sql), 100);
    let unasked = effect("UPDATE account SET amount = 0 WHERE id = 99", vec![], None);
    let answer = finish(fixture, session, lease, done(), vec![add_to_amount(5), unasked]).await;
    assert_eq!((answer, amount(sql)), (FinishResult::Recorded(UnitState::Done), 105));
}

pub(super) async fn a_failing_unit_does_not_undo_its_neighbours(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    fixture.send_sealed_batch(NewBatch::new(batch_id("b")), 3).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 3).await;
    let broken = effect("no sql at all", vec![], None);
    let effects = [vec![add_to_amount(1)], vec![add_to_amount(10), broken], vec![add_to_amount(100)]];
    let finishes = held
        .iter()
        .zip(effects)
        .map(|(held, effects)| FinishRequest { effects, ..FinishRequest::new(held.lease, done()) });
    let answers = fixture.store.finish(session, finishes.collect()).await.unwrap();
    let recorded = FinishResult::Recorded(UnitState::Done);
    assert_eq!((&answers[0], &answers[2]), (&recorded, &recorded));
    assert!(matches!(answers[1], FinishResult::EffectFailed(_)), "{answers:?}");
    assert_eq!(amount(sql), 201);
    let counts = fixture.batch(&batch_id("b")).await.counts;
    assert_eq!((counts.done, counts.leased), (2, 1));
}

pub(super) async fn effects_of_a_checkpoint_commit_with_it_once(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    let save = |state: &str, effects| {
        let request =
            CheckpointRequest { effects, ..CheckpointRequest::new(Payload::from(state.as_bytes())) };
        fixture.store.checkpoint(session, lease, request)
    };
    for _ in 0..2 {
        assert!(save("one", vec![add_to_amount(5)]).await.unwrap());
    }
    assert_eq!(amount(sql), 105, "a repeat has no effects");
    let broken = effect("UPDATE account SET amount = 0 WHERE id = 99", vec![], Some(1));
    let failed = save("two", vec![add_to_amount(5), broken]).await;
    assert!(matches!(failed, Err(Error::EffectFailed(_))), "{failed:?}");
    let stored = fixture.unit(id).await.checkpoint;
    assert_eq!((amount(sql), stored), (105, Some(Payload::from(b"one".as_slice()))));
    assert!(save("two", vec![add_to_amount(1)]).await.unwrap(), "it is still held");
    fixture.kill(session).await;
    assert!(!save("three", vec![add_to_amount(5)]).await.unwrap(), "the lease is lost");
    assert_eq!(amount(sql), 106);
}

pub(super) async fn values_are_bound_and_never_pasted(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    let text = "'); DELETE FROM account; --";
    sql.execute("CREATE TABLE note (a INTEGER, b TEXT, c REAL, d BLOB, e TEXT)");
    let values = vec![
        SqlValue::Bool(true),
        SqlValue::Text(text.to_owned()),
        SqlValue::Real(0.5),
        SqlValue::Blob(vec![0, 1, 255]),
        SqlValue::Null,
    ];
    let insert = effect("INSERT INTO note VALUES (?1, ?2, ?3, ?4, ?5)", values, Some(1));
    let answer = finish(fixture, session, lease, done(), vec![insert]).await;
    assert_eq!(answer, FinishResult::Recorded(UnitState::Done));
    assert_eq!(amount(sql), 100);
    let length = i64::try_from(text.len()).unwrap();
    assert_eq!(sql.query_i64("SELECT length(b) FROM note"), length);
    let kept = "SELECT count(*) FROM note WHERE a = 1 AND c = 0.5 AND length(d) = 3 AND e IS NULL";
    assert_eq!(sql.query_i64(kept), 1);
}

pub(super) async fn values_are_bound_by_name_and_unused_ones_ignored(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    let named = |name: &str, value| (name.to_owned(), SqlValue::Int(value));
    let by_name = Effect {
        sql: "UPDATE account SET amount = :amount WHERE id = :id".into(),
        params: Params::Named(vec![named("amount", 7), named("unused", 8), named("id", 1)]),
        expected_rows: Some(1),
    };
    finish(fixture, session, lease, done(), vec![by_name]).await;
    assert_eq!(amount(sql), 7);
}

pub(super) async fn effects_go_with_any_outcome(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    let session = fixture.session().await;
    for outcome in [failed(), retry_after(secs(60)), Outcome::Snooze(secs(60))] {
        fixture.send(unit()).await;
        let lease = fixture.claim_one(session).await.lease;
        finish(fixture, session, lease, outcome, vec![add_to_amount(1)]).await;
    }
    assert_eq!(amount(sql), 103);
}

pub(super) async fn an_effect_cannot_end_the_stores_transaction(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    for statement in ["COMMIT", "ROLLBACK", "BEGIN"] {
        let ending = effect(statement, vec![], None);
        let broken = effect("UPDATE nothing SET x = 1", vec![], None);
        let effects = vec![add_to_amount(5), ending, broken];
        let finishes = vec![FinishRequest { effects, ..FinishRequest::new(lease, done()) }];
        match fixture.store.finish(session, finishes).await {
            Ok(answers) => {
                assert!(matches!(answers[0], FinishResult::EffectFailed(_)), "{answers:?}");
            }
            Err(error) => assert!(!error.is_retryable(), "{error}"),
        }
        assert_eq!(amount(sql), 100, "{statement} let a part of the effects through");
    }
    let answer = finish(fixture, session, lease, done(), vec![add_to_amount(1)]).await;
    assert_eq!((answer, amount(sql)), (FinishResult::Recorded(UnitState::Done), 101));
}

/// A table with a foreign key that is checked when the transaction commits.
const CREATE_CARD_TABLE: &str = "CREATE TABLE card (id INTEGER PRIMARY KEY, account INTEGER NOT NULL
    REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED)";

/// Which of the twenty units inserts a card for a missing account.
const INVALID_INDEX: usize = 13;

/// Finishes of twenty units, each of which inserts a card.
fn card_finishes(held: &[LeasedUnit]) -> Vec<FinishRequest> {
    let finish_with_card = |(index, held): (usize, &LeasedUnit)| {
        let (id, account) = (i64::try_from(index).unwrap(), if index == INVALID_INDEX { 99 } else { 1 });
        let values = vec![SqlValue::Int(id), SqlValue::Int(account)];
        let effects = vec![effect("INSERT INTO card VALUES (?1, ?2)", values, Some(1))];
        FinishRequest { effects, ..FinishRequest::new(held.lease, done()) }
    };
    held.iter().enumerate().map(finish_with_card).collect()
}

/// Whether the store recorded a finish. Otherwise its error must blame the foreign key.
fn is_recorded(answer: &Result<Vec<FinishResult>>) -> bool {
    match answer {
        Ok(answers) => answers[0] == FinishResult::Recorded(UnitState::Done),
        Err(error) => {
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
            assert!(error.to_string().to_lowercase().contains("foreign key"), "{error}");
            false
        }
    }
}

/// Asserts that nineteen cards exist, and that the invalid unit can still be finished differently.
async fn assert_only_invalid_left(sql: &dyn SqlStoreFixture, session: SessionId, held: &[LeasedUnit]) {
    let fixture = sql.fixture();
    assert_eq!(sql.query_i64("SELECT count(*) FROM card WHERE account = 1"), 19);
    assert_eq!(sql.query_i64("SELECT count(*) FROM card"), 19);
    let counts = fixture.batch(&batch_id("b")).await.counts;
    assert_eq!((counts.done, counts.leased), (19, 1));
    let answer = finish(fixture, session, held[INVALID_INDEX].lease, failed(), vec![add_to_amount(1)]).await;
    assert_eq!((answer, amount(sql)), (FinishResult::Recorded(UnitState::Failed), 101));
}

pub(super) async fn a_broken_deferred_key_costs_its_own_unit_only(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    sql.execute(CREATE_CARD_TABLE);
    fixture.send_sealed_batch(NewBatch::new(batch_id("b")), 20).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 20).await;
    let mut calls = JoinSet::new();
    for (index, finish) in card_finishes(&held).into_iter().enumerate() {
        let store = fixture.store.clone();
        calls.spawn(async move { (index, is_recorded(&store.finish(session, vec![finish]).await)) });
    }
    for (index, recorded) in calls.join_all().await {
        assert_eq!(recorded, index != INVALID_INDEX, "number {index}");
    }
    assert_only_invalid_left(sql, session, &held).await;
}

pub(super) async fn a_broken_deferred_key_does_not_stop_the_store(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    sql.execute(CREATE_CARD_TABLE);
    fixture.send_sealed_batch(NewBatch::new(batch_id("b")), 20).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 20).await;
    // All in one call: the store reports the invalid finish, or rejects all of them.
    match fixture.store.finish(session, card_finishes(&held)).await {
        Ok(answers) => {
            assert!(matches!(answers[INVALID_INDEX], FinishResult::EffectFailed(_)), "{answers:?}");
        }
        rejected => {
            assert!(!is_recorded(&rejected));
            assert_eq!(sql.query_i64("SELECT count(*) FROM card"), 0);
        }
    }
    for (index, finish) in card_finishes(&held).into_iter().enumerate() {
        let answer = fixture.store.finish(session, vec![finish]).await;
        assert_eq!(is_recorded(&answer), index != INVALID_INDEX, "number {index}");
    }
    assert_only_invalid_left(sql, session, &held).await;
}

pub(super) async fn an_immediate_key_is_immediate_for_each_unit_of_a_call(sql: &dyn SqlStoreFixture) {
    let fixture = sql.fixture();
    sql.execute(&CREATE_CARD_TABLE.replace("INITIALLY DEFERRED", "INITIALLY IMMEDIATE"));
    fixture.send_sealed_batch(NewBatch::new(batch_id("b")), 3).await;
    let session = fixture.session().await;
    let card_before_account = |(held, id): (&LeasedUnit, i64)| {
        let insert = |sql: &str| effect(sql, vec![SqlValue::Int(id)], Some(1));
        let effects =
            vec![insert("INSERT INTO card VALUES (?1, ?1)"), insert("INSERT INTO account VALUES (?1, 0)")];
        FinishRequest { effects, ..FinishRequest::new(held.lease, done()) }
    };
    let finishes = fixture.claim(session, 3).await.iter().zip(10..).map(card_before_account).collect();
    let answers = fixture.store.finish(session, finishes).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, FinishResult::EffectFailed(_))), "{answers:?}");
    assert_eq!(sql.query_i64("SELECT count(*) FROM card"), 0);
}
