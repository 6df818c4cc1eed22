//! The server stops, restarts, or connections are cut; callers give up midway.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use longshore_core::Error;
use longshore_core::permits::{AcquireResult, Permits};
use longshore_testkit::blocked_runtime::heartbeats_and_renewals_are_answered;
use longshore_testkit::servers::{PrivateRedis, RedisPersistence};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, block_in_place};

use crate::helpers::{
    LONG, ask, granted, open, open_redis, pool, retry_until_ok, server, until_granted, wait,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_says_so_and_works_again_when_it_is_back() {
    let mut server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let mine = ask(LONG);
    let fence = granted(&*permits, &mine).await.fence;
    block_in_place(|| server.stop());
    for _ in 0..3 {
        let error = permits.acquire(pool(), &mine).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains(server.password()), "{error:?}");
    }
    block_in_place(|| server.restart()).unwrap();
    // The server has lost the scripts; they are sent again.
    let AcquireResult::Granted(again) = retry_until_ok(|| permits.acquire(pool(), &mine)).await else {
        panic!()
    };
    assert_eq!(again.fence, fence);
    block_in_place(|| server.run(&["SCRIPT", "FLUSH"])).unwrap();
    permits.release(pool(), &[mine.id], false).await.unwrap();
    granted(&*permits, &ask(LONG)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_not_seen_by_who_asks_after_it() {
    let mut server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let mine = ask(LONG);
    granted(&*permits, &mine).await;
    block_in_place(|| server.restart()).unwrap();
    // The connection is broken, which only this request finds out.
    assert_eq!(permits.renew(pool(), &[mine.id], LONG).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_lost_costs_no_permit() {
    let server = server(RedisPersistence::Always).await;
    let proxy = Proxy::before(server.port()).await;
    let through = Arc::new(open_redis(&server.url_at(proxy.port)));
    let direct = open(&server.url());
    through.check().await.unwrap();
    for _ in 0..10 {
        // The server gets the request, but its reply is lost. The client repeats the request.
        proxy.swallow_next_answer();
        let mine = ask(LONG);
        let grant = granted(&*through, &mine).await;
        let stats = direct.stats(pool()).await.unwrap().unwrap();
        assert_eq!((stats.in_use, stats.holders[0].fence), (1, grant.fence));
        proxy.swallow_next_answer();
        through.release(pool(), &[mine.id], false).await.unwrap();
        assert_eq!(direct.stats(pool()).await.unwrap().unwrap().in_use, 0);
    }
    let stats = direct.stats(pool()).await.unwrap().unwrap();
    assert_eq!((stats.acquired, stats.expired), (10, 0));
    proxy.swallow_next_answer();
    assert!(through.acquire_alert(pool(), "full", LONG).await.unwrap(), "a repeat is recognised");
    assert!(!direct.acquire_alert(pool(), "full", LONG).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_in_the_middle_swallows_no_permit() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    granted(&*permits, &ask(Duration::from_millis(1))).await;
    for _ in 0..20 {
        // Unknown scripts are sent again: by then other requests are in flight.
        block_in_place(|| server.run(&["SCRIPT", "FLUSH"])).unwrap();
        let mut tasks = JoinSet::new();
        for round in 0..200_u64 {
            let permits = Arc::clone(&permits);
            tasks.spawn(async move {
                let asked = wait(LONG);
                let call = permits.acquire(pool(), &asked);
                if round % 2 == 0 {
                    // Polled once: it is in flight, and its reply is not awaited.
                    assert!(call.now_or_never().is_none_or(|answer| answer.is_ok()));
                } else {
                    let _ = tokio::time::timeout(Duration::from_micros(round * 10), call).await;
                }
                permits.release(pool(), &[asked.id], false).await.unwrap();
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let stats = permits.stats(pool()).await.unwrap().unwrap();
        assert_eq!((stats.in_use, stats.waiting.len()), (0, 0), "{stats:?}");
    }
    granted(&*permits, &ask(LONG)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_come_again_after_their_connection_was_cut() {
    let server = server(RedisPersistence::Always).await;
    let (permits, other) = (open(&server.url()), open(&server.url()));
    let (mine, next) = (ask(LONG), wait(LONG));
    granted(&*other, &mine).await;
    permits.acquire(pool(), &next).await.unwrap();
    block_in_place(|| server.run(&["CLIENT", "KILL", "TYPE", "pubsub"])).unwrap();
    // The waiter is woken, since a notification may have been missed.
    permits.wait_for_wakeup(pool(), next.id).await;
    assert!(matches!(permits.acquire(pool(), &next).await.unwrap(), AcquireResult::Waiting { .. }));
    other.release(pool(), &[mine.id], false).await.unwrap();
    permits.wait_for_wakeup(pool(), next.id).await;
    until_granted(&*permits, &next).await;
}

/// Forwards to a server, and drops replies on demand.
struct Proxy {
    port: u16,
    swallow: Arc<std::sync::atomic::AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let swallow = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (mut tasks, flag) = (JoinSet::new(), Arc::clone(&swallow));
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                clients.spawn(forward(client, server, Arc::clone(&flag)));
            }
        });
        Self { port, swallow, _tasks: tasks }
    }

    fn swallow_next_answer(&self) {
        self.swallow.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, swallow: Arc<std::sync::atomic::AtomicBool>) {
    let mut bytes = vec![0; 65536];
    loop {
        tokio::select! {
            biased;
            count = client.read(&mut bytes) => match count {
                Ok(count) if count > 0 => server.write_all(&bytes[..count]).await.unwrap(),
                _ => return,
            },
            readable = server.readable() => {
                readable.unwrap();
                if swallow.swap(false, std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                match server.read(&mut bytes).await {
                    Ok(count) if count > 0 => client.write_all(&bytes[..count]).await.unwrap(),
                    _ => return,
                }
            }
        }
    }
}

#[test]
fn renewals_are_answered_while_every_thread_is_blocked() {
    let server = PrivateRedis::start(RedisPersistence::Always).unwrap();
    heartbeats_and_renewals_are_answered(async { (None, open(&server.url())) });
}
