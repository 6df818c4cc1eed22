//! Sending, waiting, and full queues.

use std::time::Duration;

use longshore::store::{Capacity, Queries, QueueChange, SendRejection, SendResult};
use longshore::{
    BatchId, BatchStatus, NewBatch, NewUnit, QueueName, Scope, SendError, UnitState, WaitError, WhenFull,
};
use longshore_testkit::Fault;
use serde_json::json;

use crate::harness::{Harness, Script, unit};

async fn bound(harness: &Harness, units: u64) {
    let capacity = Some(Capacity { units: Some(units), bytes: None });
    let change = QueueChange { capacity, ..QueueChange::default() };
    (&*harness.store as &dyn longshore::Store)
        .change_queue(&Scope::All, &QueueName::default(), change)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_send_whose_answer_was_lost_is_repeated_and_sends_once() {
    let harness = Harness::new();
    harness.store.set_default_fault("send", Some(Fault::FailAfter));
    let mend = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        harness.store.set_default_fault("send", None);
    };
    let (id, ()) = tokio::join!(harness.send(Script::Ok(json!(1))), mend);
    assert!(harness.store.calls("send") > 1);
    assert_eq!(harness.unit(id).await.state, UnitState::Ready);
    let all = harness.store.units(&Scope::All, &Default::default(), None, 10).await.unwrap();
    assert_eq!(all.items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_send_gives_up_when_its_patience_ends() {
    let harness = Harness::new();
    harness.store.set_outage(true);
    let began = tokio::time::Instant::now();
    let client = harness.client.clone().with_retry_timeout(Duration::from_secs(10));
    let error = client.send(unit(&Script::Cancel)).await.unwrap_err();
    assert!(matches!(error, SendError::Store(error) if error.is_retryable()));
    assert!(began.elapsed() >= Duration::from_secs(10) && began.elapsed() < Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_or_makes_the_sender_wait_as_it_chose() {
    let harness = Harness::new();
    bound(&harness, 2).await;
    let units = |n: usize| (0..n).map(|_| unit(&Script::Sleep(200))).collect::<Vec<NewUnit>>();
    let full = |sent: &SendResult| matches!(sent, SendResult::Rejected(SendRejection::Full { .. }));

    let sent = harness.client.send_many(units(3), WhenFull::Reject).await.unwrap();
    assert_eq!(sent.iter().map(full).collect::<Vec<_>>(), [false, false, true]);

    let began = tokio::time::Instant::now();
    let limit = WhenFull::WaitFor(Duration::from_secs(3));
    let sent = harness.client.send_many(units(1), limit).await.unwrap();
    assert!(full(&sent[0]));
    assert!(began.elapsed() >= Duration::from_secs(3) && began.elapsed() < Duration::from_secs(5));

    let calls = harness.store.calls("send");
    let worker = harness.worker(1).until_idle(true).build().unwrap();
    let (sent, report) = tokio::join!(harness.client.send_many(units(10), WhenFull::Wait), worker.run());
    assert!(sent.unwrap().iter().all(|sent| matches!(sent, SendResult::Created(_))));
    assert!(report.unwrap().done >= 11);
    assert!(harness.store.calls("send") - calls < 60, "it waits for news, it does not poll");
}

#[tokio::test(start_paused = true)]
async fn a_handler_never_waits_for_room() {
    let harness = Harness::new();
    bound(&harness, 1).await;
    let id = harness.send(Script::Send("default".into())).await;
    harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    let unit = harness.unit(id).await;
    assert_eq!(unit.state, UnitState::Failed);
    let message = unit.failure.unwrap().message;
    assert!(message.contains("must not wait for capacity"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_sends_further_units() {
    let harness = Harness::new();
    harness.send(Script::Send("other".into())).await;
    let report = harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!(report.done, 2);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_unit_or_with_its_limit() {
    let harness = Harness::new();
    let id = harness.send(Script::Sleep(2_000)).await;
    let limit = Some(Duration::from_secs(1));
    let error = harness.client.wait(id, limit).await.unwrap_err();
    assert!(matches!(error, WaitError::TimedOut(after) if after == Duration::from_secs(1)));
    let worker = harness.worker(1).until_idle(true).build().unwrap();
    let began = tokio::time::Instant::now();
    let (unit, report) = tokio::join!(harness.client.wait(id, None), worker.run());
    report.unwrap();
    assert_eq!(unit.unwrap().state, UnitState::Done);
    assert!(began.elapsed() < Duration::from_millis(2_600), "{:?}", began.elapsed());
    let missing = harness.client.wait(longshore::UnitId::new(), limit).await.unwrap_err();
    assert!(matches!(missing, WaitError::Store(longshore::Error::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn waiting_beside_a_busy_queue_stays_cheap() {
    let harness = Harness::new();
    harness.send_all(2_000, Script::Sleep(5)).await;
    let last = harness.send(Script::Ok(json!("last"))).await;
    let worker = harness.worker(2).until_idle(true).build().unwrap();
    let reads = harness.store.calls("unit");
    let (unit, report) = tokio::join!(harness.client.wait(last, None), worker.run());
    assert_eq!((unit.unwrap().state, report.unwrap().done), (UnitState::Done, 2_001));
    let reads = harness.store.calls("unit") - reads;
    assert!(reads < 300, "{reads} reads in five seconds");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_filled_with_a_cursor_watched_and_waited_for() {
    let harness = Harness::new();
    let id = BatchId::new("nightly").unwrap();
    let mut writer = harness.client.open_batch(NewBatch::new(id.clone())).await.unwrap();
    assert!(!writer.is_resumed());
    let chunk = |n: usize| (0..n).map(|_| unit(&Script::Sleep(50))).collect::<Vec<NewUnit>>();
    writer.add(chunk(10), "10".into()).await.unwrap();

    // A restarted initiator resumes at the cursor.
    let mut writer = harness.client.open_batch(NewBatch::new(id.clone())).await.unwrap();
    assert!(writer.is_resumed());
    assert_eq!(writer.cursor(), "10");
    writer.add(chunk(10), "20".into()).await.unwrap();
    writer.seal().await.unwrap();

    let worker = harness.worker(4).until_idle(true).build().unwrap();
    let mut seen = Vec::new();
    let wait = harness.client.wait_batch(&id, None, |batch| seen.push(batch.counts.done));
    let (batch, report) = tokio::join!(wait, worker.run());
    assert_eq!((batch.unwrap().status, report.unwrap().done), (BatchStatus::Complete, 20));
    assert!(seen.len() > 2 && seen.is_sorted(), "{seen:?}");
    assert_eq!(seen.last(), Some(&20));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_whose_answer_was_lost_is_not_added_twice() {
    let harness = Harness::new();
    let id = BatchId::new("b").unwrap();
    let mut writer = harness.client.open_batch(NewBatch::new(id.clone())).await.unwrap();
    harness.store.set_default_fault("add_to_batch", Some(Fault::FailAfter));
    let mend = async {
        harness.until(async || harness.store.calls("add_to_batch") == 1).await;
        harness.store.set_default_fault("add_to_batch", None);
    };
    let units = vec![unit(&Script::Cancel), unit(&Script::Cancel)];
    let (sent, ()) = tokio::join!(writer.add(units, "2".into()), mend);
    assert_eq!(sent.unwrap().len(), 2);
    assert_eq!(writer.cursor(), "2");
    let batch = writer.seal().await.unwrap();
    assert_eq!(batch.counts.total(), 2);

    let mut first = harness.client.open_batch(NewBatch::new(BatchId::new("c").unwrap())).await.unwrap();
    let mut second = harness.client.open_batch(NewBatch::new(BatchId::new("c").unwrap())).await.unwrap();
    second.add(vec![unit(&Script::Cancel)], "1".into()).await.unwrap();
    let error = first.add(vec![unit(&Script::Cancel)], "1".into()).await.unwrap_err();
    assert!(matches!(error, SendError::CursorMoved(at) if at == "1"));
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_its_queue_goes_in_as_room_appears() {
    let harness = Harness::new();
    bound(&harness, 4).await;
    let id = BatchId::new("big").unwrap();
    let mut writer = harness.client.open_batch(NewBatch::new(id.clone())).await.unwrap();
    let worker = harness.worker(2).until_idle(true).build().unwrap();
    let initiator = async {
        for n in 0..10 {
            let chunk = (0..3).map(|_| unit(&Script::Sleep(20))).collect();
            writer.add(chunk, format!("{n}")).await.unwrap();
        }
        writer.seal().await.unwrap();
    };
    let (report, ()) = tokio::join!(worker.run(), initiator);
    assert_eq!(report.unwrap().done, 30);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_can_never_fit_is_refused_instead_of_waited_for() {
    let harness = Harness::new();
    bound(&harness, 4).await;
    let id = BatchId::new("big").unwrap();
    let mut writer = harness.client.open_batch(NewBatch::new(id)).await.unwrap();
    let chunk = (0..5).map(|_| unit(&Script::Cancel)).collect();
    let error = writer.add(chunk, "5".into()).await.unwrap_err();
    assert!(matches!(error, SendError::Rejected(SendRejection::Full { .. })), "{error}");
    assert_eq!(writer.cursor(), "");
}

#[tokio::test]
async fn what_a_handler_sends_belongs_to_the_trace_of_its_unit() {
    let store = std::sync::Arc::new(longshore::MemoryStore::default());
    let client = longshore::Client::new(store.clone());
    let kind = |name: &str| longshore::Kind::new(name).unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let other = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-01";
    let first = NewUnit { trace: Some(trace.into()), ..NewUnit::new(kind("first"), json!(null)) };
    client.send(first).await.unwrap();
    client.send(NewUnit::new(kind("first"), json!(null))).await.unwrap();
    let sends = move |context: longshore::Context, (): ()| async move {
        let next = || NewUnit::new(longshore::Kind::new("second").unwrap(), json!(null));
        for unit in [next(), NewUnit { trace: Some(other.into()), ..next() }] {
            context.client().send(unit).await.map_err(|error| error.to_string())?;
        }
        Ok::<(), String>(())
    };
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sees = std::sync::Arc::clone(&seen);
    let notes = move |context: longshore::Context, (): ()| {
        sees.lock().unwrap().push(context.unit().trace.clone());
        async { Ok::<(), String>(()) }
    };
    let worker = longshore::Worker::builder(store)
        .handle_fn(kind("first"), longshore::Policy::default(), sends)
        .handle_fn(kind("second"), longshore::Policy::default(), notes)
        .until_idle(true);
    worker.build().unwrap().run().await.unwrap();
    let mut traces = seen.lock().unwrap().clone();
    traces.sort_unstable();
    let wanted = [None, Some(trace.to_owned()), Some(other.to_owned()), Some(other.to_owned())];
    assert_eq!(traces, wanted);
}
