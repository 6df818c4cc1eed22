//! Keys and priorities of rows: unusual and duplicate keys, and tables that change while they are
//! read.

use std::future::pending;
use std::sync::Arc;

use longshore::SqlValue;
use longshore::{OnLost, Priority, TenantId};
use longshore_batch::definition::{QUEUE, ROW_KIND};
use longshore_batch::row_enqueuer::{FillError, FillProgress};
use longshore_batch::rows::{Candidate, RowSource};
use longshore_batch::sql_json::from_json;
use serde_json::Value;

use super::fake_table::FakeTable;
use super::{FillFixture, fill, numbers};
use crate::support::{Orders, definition, units};

fn text(key: impl Into<String>) -> SqlValue {
    SqlValue::Text(key.into())
}

/// The error for a table of these rows.
async fn refusal(rows: Vec<Candidate>) -> String {
    let mut fixture = FillFixture::new(0);
    fixture.table = Arc::new(FakeTable { rows: rows.into(), ..FakeTable::default() });
    let mut initiation = fixture.start().await;
    let error = fill(&fixture.initiator(), &mut initiation).await.unwrap_err();
    assert!(matches!(error, FillError::Data(_)) && !error.is_retryable(), "{error}");
    error.to_string()
}

fn keyed(key: SqlValue) -> Vec<Candidate> {
    vec![Candidate { key, priority: None }]
}

#[tokio::test]
async fn a_row_becomes_a_unit_that_says_all_about_it() {
    let fixture = FillFixture::new(1);
    let mut wanted = definition();
    wanted.tenant = TenantId::new("acme").unwrap();
    wanted.retry.max_attempts = 3;
    wanted.on_lost = OnLost::Fail;
    let mut initiation = fixture.start_with(wanted).await;
    fill(&fixture.initiator(), &mut initiation).await.unwrap();
    let unit = units(&fixture.store, &initiation.batch().id).await.remove(0);
    assert_eq!((unit.kind.as_str(), unit.queue.as_str()), (ROW_KIND, QUEUE));
    assert_eq!((unit.tenant.as_str(), unit.key.as_deref()), ("acme", Some("lines:1")));
    assert_eq!(unit.payload.as_bytes(), br#"{"key":1}"#);
    let policy = unit.policy.unwrap();
    assert_eq!((policy.retry.max_attempts, policy.on_lost, policy.timeout), (3, OnLost::Rerun, None));
}

#[tokio::test]
async fn keys_of_all_sorts_come_back_as_they_were() {
    let orders = Orders::new(0);
    orders.run(
        "INSERT INTO line (id) VALUES (0), (-9223372036854775808), (9223372036854775807), (0.1),
         (2.5), (1e300), (''), ('0'), (' a '), ('a''; --'), ('Ünïcode 🦀'), ('a' || char(10) || 'b'),
         ('nul' || char(0) || 'nul'), (':from'), ('{\"key\": 1}'), ('%3A:')",
    );
    let fixture = FillFixture::new(0);
    let rows: Arc<dyn RowSource> = orders.rows();
    for page in [1, 2, 100] {
        let initiator = longshore_batch::RowEnqueuer::new(fixture.client(), rows.clone());
        let initiator = initiator.with_sizes(page, 3);
        let mut wanted = definition();
        wanted.candidates.claim = None;
        let mut initiation = initiator.start(wanted, super::options()).await.unwrap();
        fill(&initiator, &mut initiation).await.unwrap();
        let sent = fixture.keys(&initiation.batch().id).await;
        let sent: Vec<SqlValue> = sent.iter().map(from_json).collect();
        let kept = rows.fetch("SELECT id FROM line ORDER BY id", &[]).await.unwrap();
        let kept: Vec<SqlValue> = kept.into_iter().map(|row| row.columns[0].1.clone()).collect();
        assert_eq!(sent, kept);
        assert_eq!(sent.len(), 16);
    }
}

#[tokio::test]
async fn a_key_that_two_rows_have_is_refused_wherever_a_page_ends() {
    for page in 1..=6 {
        let mut fixture = FillFixture::new(0);
        fixture.table = Arc::new(FakeTable::of([1, 2, 3, 3, 4].map(SqlValue::Int)));
        let mut initiation = fixture.start().await;
        let initiator = fixture.initiator().with_sizes(page, 2);
        let error = fill(&initiator, &mut initiation).await.unwrap_err().to_string();
        assert!(error.contains("two candidates have the key `3` in `id`"), "{page}: {error}");
    }
}

#[tokio::test]
async fn keys_that_cannot_be_kept_are_refused_by_name() {
    let long = refusal(keyed(text("ü".repeat(300)))).await;
    assert!(long.contains("`üüü") && long.contains("…`") && long.contains("longer than"), "{long}");
    let endless = refusal(keyed(SqlValue::Real(f64::INFINITY))).await;
    assert!(endless.contains("cannot be kept exactly"), "{endless}");
    assert!(refusal(keyed(SqlValue::Null)).await.contains("cannot be kept exactly"));
}

#[tokio::test]
async fn priorities_are_numbers_names_or_nothing() {
    let row = |(key, priority)| Candidate { key: SqlValue::Int(key), priority: Some(priority) };
    let values = [
        SqlValue::Null,
        SqlValue::Int(1),
        SqlValue::Int(9),
        text("high"),
        text(" Low"),
        text("3"),
        SqlValue::Real(7.0),
    ];
    let mut fixture = FillFixture::new(0);
    let rows: Vec<Candidate> = (1..).zip(values).map(row).collect();
    fixture.table = Arc::new(FakeTable { rows: rows.into(), ..FakeTable::default() });
    let mut initiation = fixture.start().await;
    fill(&fixture.initiator(), &mut initiation).await.unwrap();
    let units = units(&fixture.store, &initiation.batch().id).await;
    let levels: Vec<u8> = units.iter().map(|unit| Priority::level(unit.priority)).collect();
    assert_eq!(levels, [5, 1, 9, 1, 9, 3, 7]);
}

#[tokio::test]
async fn a_row_with_a_bad_priority_goes_in_with_its_problem_and_keeps_nobody_out() {
    let bad = [SqlValue::Int(0), SqlValue::Int(10), SqlValue::Real(1.5), text("soon")];
    let rows =
        (1..).zip(bad).map(|(key, priority)| Candidate { key: SqlValue::Int(key), priority: Some(priority) });
    let mut fixture = FillFixture::new(0);
    fixture.table = Arc::new(FakeTable { rows: rows.collect::<Vec<_>>().into(), ..FakeTable::default() });
    let mut initiation = fixture.start().await;
    fill(&fixture.initiator(), &mut initiation).await.unwrap();
    let units = units(&fixture.store, &initiation.batch().id).await;
    assert_eq!(units.len(), 4);
    for unit in units {
        let input: longshore_batch::handler::RowInput = unit.payload.parse().unwrap();
        let problem = input.problem.unwrap();
        assert!(problem.contains("bad priority"), "{problem}");
    }
}

#[tokio::test]
async fn a_table_that_changes_meanwhile_does_no_harm() {
    let orders = Orders::new(10);
    let fixture = FillFixture::new(0);
    let initiator = longshore_batch::RowEnqueuer::new(fixture.client(), orders.rows()).with_sizes(2, 2);
    let mut initiation = initiator.start(definition(), super::options()).await.unwrap();
    let meddle = |filling: FillProgress| {
        if filling.sent == 4 {
            // The row passed last is deleted, another is no candidate any more, and two are new.
            orders.run(
                "DELETE FROM line WHERE id = 4; UPDATE line SET status = 'done' WHERE id = 7;
                 INSERT INTO line (id) VALUES (11), (0)",
            );
        }
    };
    let filled = initiator.fill(&mut initiation, pending(), meddle).await.unwrap();
    assert_eq!(filled.progress, FillProgress { sent: 10, skipped: 0 });
    let expected: Vec<Value> = numbers(1..=11).into_iter().filter(|key| *key != 7).collect();
    assert_eq!(fixture.keys(&initiation.batch().id).await, expected);
}

#[tokio::test]
async fn the_number_1_and_the_text_1_are_two_rows() {
    let rows = [SqlValue::Int(1), text("1")];
    let rows = rows.map(|key| Candidate { key, priority: None });
    let mut fixture = FillFixture::new(0);
    fixture.table = Arc::new(FakeTable { rows: rows.to_vec().into(), ..FakeTable::default() });
    let mut initiation = fixture.start().await;
    fill(&fixture.initiator(), &mut initiation).await.unwrap();
    let units = units(&fixture.store, &initiation.batch().id).await;
    let mut keys: Vec<_> = units.iter().map(|unit| unit.key.clone().unwrap()).collect();
    keys.dedup();
    assert_eq!(keys.len(), 2, "{keys:?}");
}
