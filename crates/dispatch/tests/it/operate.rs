//! What people look at and do, through the server.

use longshore::{TenantId, UnitState};
use longshore_dispatch::request::{
    ArrayAction, Arrays, Deed, Items, Reply, Request, Shown, Units, nth,
};
use longshore_dispatch::script::End;

use crate::kit::{Pool, array, eventually, once};

async fn shown(pool: &Pool, id: longshore::UnitId) -> Shown {
    match pool.client().await.ask(&Request::Show(None, id)).await.unwrap() {
        Reply::Shown(shown) => *shown,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_script_that_failed_is_shown_with_its_report_and_runs_again() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let (id, submission) = once(pool.script("job.sh", "echo hello; [ -e good ] || exit 42"));
    pool.submit(submission).await;
    pool.ended(id).await;
    let seen = shown(&pool, id).await;
    let report = seen.view.report.unwrap();
    assert_eq!((report.end, report.tail.as_str()), (End::Exited(42), "hello\n"));
    assert!(report.peak_memory > 0 && !report.host.is_empty());
    assert_eq!((seen.past.len(), seen.past[0].attempt), (1, 1));
    assert!(seen.script.unwrap().path.ends_with("job.sh"));
    std::fs::write(pool.path("good"), "").unwrap();
    let retry = Request::Operate(None, vec![id], Deed::Retry);
    assert!(matches!(
        pool.client().await.ask(&retry).await.unwrap(),
        Reply::Operated(done) if done.changed == 1
    ));
    assert_eq!(pool.ended(id).await.state, UnitState::Done);
    assert_eq!(shown(&pool, id).await.view.report.unwrap().end, End::Exited(0));
}

/// The store is asked for what was cancelled every ten seconds; `LONG` would let that pass. So the
/// script's own end would come first: it lasts eight.
#[tokio::test]
async fn a_running_script_that_is_cancelled_ends_at_once() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let (id, submission) = once(pool.script("job.sh", "touch began; sleep 8; touch ended"));
    pool.submit(submission).await;
    eventually(async || pool.path("began").exists().then_some(())).await;
    let cancel = Request::Operate(None, vec![id], Deed::Cancel);
    assert!(matches!(
        pool.client().await.ask(&cancel).await.unwrap(),
        Reply::Operated(done) if (done.changed, done.requested) == (0, 1)
    ));
    assert_eq!(pool.ended(id).await.state, UnitState::Cancelled);
    assert!(!pool.path("ended").exists());
}

#[tokio::test]
async fn an_array_is_listed_paused_resumed_and_cancelled() {
    let pool = Pool::start().await;
    let mut submission = array(pool.script("job.sh", "true"), "a", 1, 5);
    let first = longshore::UnitId::new();
    if let Items::Each { first: id, .. } = &mut submission.items {
        *id = Some(first);
    }
    pool.submit(submission).await;
    let mut client = pool.client().await;
    let list = Units { state: Some(UnitState::Ready), batch: None, after: None, limit: 3 };
    let Reply::Units(units, next) = client.ask(&Request::Units(None, list)).await.unwrap() else {
        panic!("no list")
    };
    assert!(units.len() == 3 && next.is_some());
    assert_eq!((units[0].unit, units[0].index), (nth(first, 4), Some(5)), "the newest first");
    let mut steer = async |action| {
        let id = longshore::BatchId::new("a").unwrap();
        match client.ask(&Request::Steer(None, id, action)).await.unwrap() {
            Reply::Steered(batch) => batch.status.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let reason = "tea".to_owned();
    assert_eq!(steer(Some(ArrayAction::Pause { reason })).await, "paused");
    assert_eq!(steer(None).await, "paused");
    assert_ne!(steer(Some(ArrayAction::Resume)).await, "paused");
    assert_eq!(steer(Some(ArrayAction::Cancel)).await, "cancelled");
    assert_eq!(pool.counts().await.cancelled, 5);
    let list = Arrays { status: None, after: None, limit: 10 };
    let Reply::Arrays(arrays, None) = client.ask(&Request::Arrays(None, list)).await.unwrap()
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
    for request in
        [Request::Show(other.clone(), id), Request::Operate(other.clone(), vec![id], Deed::Cancel)]
    {
        assert!(client.ask(&request).await.is_err(), "{request:?}");
    }
    assert_eq!(pool.unit(id).await.state, UnitState::Ready);
}
