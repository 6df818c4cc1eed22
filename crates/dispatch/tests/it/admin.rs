//! Listing and changing units and arrays through the server.

use longshore::{TenantId, UnitState};
use longshore_dispatch::request::{
    ArrayAction, ArrayQuery, ClientRequest, ServerReply, UnitDetails, UnitOperation, UnitQuery,
};
use longshore_dispatch::script::RunEnd;

use crate::pool_fixture::{Pool, array, eventually, once};

async fn shown(pool: &Pool, id: longshore::UnitId) -> UnitDetails {
    match pool.client().await.request(&ClientRequest::Show(None, id)).await.unwrap() {
        ServerReply::Shown(shown) => *shown,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_script_that_failed_is_shown_with_its_report_and_runs_again() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let (id, submission) = once(pool.script("job.sh", "echo hello; [ -e good ] || exit 42"));
    pool.submit(submission).await;
    pool.wait_for_end(id).await;
    let details = shown(&pool, id).await;
    let report = details.view.report.unwrap();
    assert_eq!((report.end, report.tail.as_str()), (RunEnd::Exited(42), "hello\n"));
    assert!(report.peak_memory > 0 && !report.host.is_empty());
    assert_eq!((details.past.len(), details.past[0].attempt), (1, 1));
    assert!(details.script.unwrap().path.ends_with("job.sh"));
    std::fs::write(pool.path("good"), "").unwrap();
    let retry = ClientRequest::Operate(None, vec![id], UnitOperation::Retry);
    assert!(matches!(
        pool.client().await.request(&retry).await.unwrap(),
        ServerReply::Operated(done) if done.changed == 1
    ));
    assert_eq!(pool.wait_for_end(id).await.state, UnitState::Done);
    assert_eq!(shown(&pool, id).await.view.report.unwrap().end, RunEnd::Exited(0));
}

/// The server's next periodic heartbeat comes long after the test's timeout.
#[tokio::test]
async fn a_running_script_that_is_cancelled_ends_at_once() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let (id, submission) = once(pool.script("job.sh", "touch began; sleep 1000; touch ended"));
    pool.submit(submission).await;
    eventually(async || pool.path("began").exists().then_some(())).await;
    let cancel = ClientRequest::Operate(None, vec![id], UnitOperation::Cancel);
    assert!(matches!(
        pool.client().await.request(&cancel).await.unwrap(),
        ServerReply::Operated(done) if (done.changed, done.requested) == (0, 1)
    ));
    assert_eq!(pool.wait_for_end(id).await.state, UnitState::Cancelled);
    assert!(!pool.path("ended").exists());
}

#[tokio::test]
async fn the_running_scripts_of_a_cancelled_array_end_at_once() {
    let pool = Pool::start().await;
    let workers = [pool.worker(2), pool.worker(2)];
    let script = pool.script("job.sh", "echo $$ >> began; exec sleep 1000");
    pool.submit(array(script, "a", 1, 50)).await;
    let began = || std::fs::read_to_string(pool.path("began")).unwrap_or_default();
    eventually(async || (began().lines().count() == 4).then_some(())).await;
    let id = longshore::BatchId::new("a").unwrap();
    let cancel = ClientRequest::Steer(None, id, Some(ArrayAction::Cancel));
    pool.client().await.request(&cancel).await.unwrap();
    assert_eq!(pool.wait_until_idle().await.cancelled, 50);
    assert_eq!(began().lines().count(), 4, "none of the others was begun");
    let alive = |pid: &str| std::path::Path::new("/proc").join(pid).exists();
    assert!(!began().lines().any(alive));
    pool.drain().await;
    for worker in workers {
        worker.summary.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn of_a_paused_array_nothing_more_is_begun_even_if_it_was_claimed() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    // Short scripts first, so that the server prefills the worker.
    pool.submit(array(pool.script("short.sh", "true"), "short", 1, 20)).await;
    pool.wait_until_idle().await;
    let script = pool.script("job.sh", "echo x >> runs; until [ -e go ]; do sleep 0.02; done");
    pool.submit(array(script, "a", 1, 50)).await;
    let runs = || std::fs::read_to_string(pool.path("runs")).unwrap_or_default().lines().count();
    eventually(async || (runs() == 1).then_some(())).await;
    let id = longshore::BatchId::new("a").unwrap();
    let reason = "tea".to_owned();
    let pause = ClientRequest::Steer(None, id.clone(), Some(ArrayAction::Pause { reason }));
    pool.client().await.request(&pause).await.unwrap();
    eventually(async || (pool.counts().await.leased == 1).then_some(())).await;
    std::fs::write(pool.path("go"), "").unwrap();
    eventually(async || (pool.counts().await.leased == 0).then_some(())).await;
    assert_eq!((pool.counts().await.ready, runs()), (49, 1));
    let resume = ClientRequest::Steer(None, id, Some(ArrayAction::Resume));
    pool.client().await.request(&resume).await.unwrap();
    assert_eq!((pool.wait_until_idle().await.done, runs()), (70, 50));
}

#[tokio::test]
async fn an_array_is_listed_paused_resumed_and_cancelled() {
    let pool = Pool::start().await;
    pool.submit(array(pool.script("job.sh", "true"), "a", 1, 5)).await;
    let mut client = pool.client().await;
    let list = UnitQuery { state: Some(UnitState::Ready), batch: None, after: None, limit: 3 };
    let ServerReply::Units(units, next) = client.request(&ClientRequest::Units(None, list)).await.unwrap()
    else {
        panic!("no list")
    };
    assert!(units.len() == 3 && next.is_some());
    assert_eq!(units[0].index, Some(5), "the newest first");
    let mut steer = async |action| {
        let id = longshore::BatchId::new("a").unwrap();
        match client.request(&ClientRequest::Steer(None, id, action)).await.unwrap() {
            ServerReply::Steered(batch) => batch.status.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let reason = "tea".to_owned();
    assert_eq!(steer(Some(ArrayAction::Pause { reason })).await, "paused");
    assert_eq!(steer(None).await, "paused");
    assert_ne!(steer(Some(ArrayAction::Resume)).await, "paused");
    assert_eq!(steer(Some(ArrayAction::Cancel)).await, "cancelled");
    assert_eq!(pool.counts().await.cancelled, 5);
    let list = ArrayQuery { status: None, after: None, limit: 10 };
    let ServerReply::Arrays(arrays, None) = client.request(&ClientRequest::Arrays(None, list)).await.unwrap()
    else {
        panic!("no list")
    };
    assert_eq!(arrays.len(), 1);
}

#[tokio::test]
async fn what_belongs_to_another_tenant_is_not_there() {
    let pool = Pool::start().await;
    let (id, submission) = once(pool.script("job.sh", "true"));
    pool.submit(submission).await;
    let other = Some(TenantId::new("other").unwrap());
    let mut client = pool.client().await;
    for request in [
        ClientRequest::Show(other.clone(), id),
        ClientRequest::Operate(other.clone(), vec![id], UnitOperation::Cancel),
    ] {
        assert!(client.request(&request).await.is_err(), "{request:?}");
    }
    assert_eq!(pool.unit(id).await.state, UnitState::Ready);
}
