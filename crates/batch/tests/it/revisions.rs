//! A running batch is corrected: its remaining rows run with the new definition, on SQLite and on
//! PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use longshore::batch::{BatchAction, BatchRevision, FailureLimit, FailureThreshold, OnThreshold};
use longshore::{BatchId, Payload, Policy, Scope, Services, Timestamp, Worker};
use longshore_ai::Provider;
use longshore_batch::RowHandler;
use longshore_batch::definition::{Candidates, Database, Definition, Pre, RevisionError};
use longshore_batch::row_listing;
use longshore_batch::rows::DatabaseFingerprint;
use serde_json::json;

use crate::ended_rows::databases::{SharedDatabase, on_each_database};
use crate::handler::fixture::{definition, row_kind};

fn original() -> Definition {
    let mut definition = Definition { database: Database::Store, ..definition() };
    definition.post = longshore_batch::definition::Post::Sql(longshore_batch::definition::SqlPost::default());
    definition
}

fn with_prompt(prompt: &str, basis: &Definition) -> Definition {
    let mut new = basis.clone();
    if let Pre::Sql(pre) = &mut new.pre {
        prompt.clone_into(&mut pre.template);
    }
    new
}

async fn revise(shared: &SharedDatabase, id: &BatchId, new: Definition) -> longshore::Result<()> {
    let store = &shared.fixture.store;
    let expected = store.definition(&Scope::All, id).await?.unwrap();
    let stored: Definition = expected.parse().unwrap();
    let revised = stored.revised(new, Timestamp::from_micros(7), "a test").unwrap();
    let (definition, threshold) = (Payload::json(&revised).unwrap(), revised.threshold);
    let revision = BatchRevision { expected, definition, threshold, workers: None };
    store.apply_batch_action(&Scope::All, id, BatchAction::Revise(Box::new(revision))).await.map(drop)
}

on_each_database! {
    a_running_worker_takes_a_corrected_prompt_up_for_the_rows_that_remain,
}

async fn a_running_worker_takes_a_corrected_prompt_up_for_the_rows_that_remain(shared: SharedDatabase) {
    let keys: Vec<_> = (1..=20).map(|key| json!(key)).collect();
    let id = shared.fixture.start(&original(), &keys).await;
    let provider = Arc::clone(&shared.fixture.provider);
    let rows =
        RowHandler::builder(shared.sources()).provider("fake", Arc::clone(&provider) as Arc<dyn Provider>);
    let worker = Worker::builder(Arc::clone(&shared.fixture.store)).slots(1).services(Services::All);
    let worker = worker.handle(row_kind(), Policy::default(), rows.build()).until_idle(true).build().unwrap();
    let store = Arc::clone(&shared.fixture.store);
    let correct = async {
        while provider.count() < 5 {
            shared.fixture.asked().await;
        }
        let pause = BatchAction::Pause { reason: "a wrong prompt".to_owned() };
        store.apply_batch_action(&Scope::All, &id, pause).await.unwrap();
        let limit = FailureLimit::Units(3);
        let threshold = Some(FailureThreshold { limit, then: OnThreshold::Fail });
        let new = Definition { threshold, ..with_prompt("{{ id }}, please?", &original()) };
        revise(&shared, &id, new).await.unwrap();
        // The worker reads the definition once a second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        store.apply_batch_action(&Scope::All, &id, BatchAction::Resume).await.unwrap();
    };
    let (worked, ()) = tokio::join!(worker.run(), correct);
    worked.unwrap();
    let batch = shared.fixture.batch(&id).await;
    assert_eq!((batch.counts.done, batch.threshold.unwrap().limit), (20, FailureLimit::Units(3)));
    let asked: Vec<String> =
        provider.questions.lock().unwrap().iter().map(|asked| asked.prompt.clone()).collect();
    let corrected = asked.iter().filter(|prompt| prompt.ends_with(", please?")).count();
    assert_eq!(asked.len(), 20, "no row was asked about twice");
    assert!((10..=15).contains(&corrected), "{asked:?}");
    let listed = row_listing::rows(&*store, &Scope::All, &id, &row_listing::RowFilter::default(), None, 100)
        .await
        .unwrap()
        .items;
    let second = listed.iter().filter(|row| row.revision == Some(2)).count();
    assert_eq!((listed.len(), second), (20, corrected), "each row knows its revision");
    let report =
        longshore_batch::Report::gather(&*store, &Scope::All, &id, batch.initiated_at).await.unwrap();
    assert!(report.markdown().contains("2: pre, failures changed"), "{}", report.markdown());
}

#[test]
fn what_identifies_the_rows_cannot_change() {
    let (own, at) = (original(), Timestamp::from_micros(7));
    let refused = |new: Definition| own.revised(new, at, "a test").unwrap_err();
    let candidates = Candidates { key: "other".to_owned(), ..own.candidates.clone() };
    assert_eq!(refused(Definition { candidates, ..own.clone() }), RevisionError::Fixed("candidates"));
    let database = Database::Url("sqlite:other.db".to_owned());
    assert_eq!(refused(Definition { database, ..own.clone() }), RevisionError::Fixed("database"));
    assert_eq!(refused(own.clone()), RevisionError::Unchanged);
    let revised = own.revised(with_prompt("new", &own), at, "a test").unwrap();
    let fingerprint = DatabaseFingerprint {
        product: "SQLite".to_owned(),
        server: Some("7".to_owned()),
        database: None,
        schemas: None,
        path: None,
    };
    let bound = Definition { fingerprint: Some(fingerprint), ..own.clone() };
    let corrected = bound.revised(with_prompt("new", &own), at, "a test").unwrap();
    assert_eq!(corrected.fingerprint, bound.fingerprint, "a file does not know it");
    let again = revised.revised(with_prompt("newer", &own), at, "a test").unwrap();
    assert_eq!((again.revision, again.revisions.len()), (3, 2));
    assert_eq!(again.revisions[1].changed, ["pre"]);
    assert!(again.revisions.iter().all(|revision| revision.replaced.revisions.is_empty()));
}
