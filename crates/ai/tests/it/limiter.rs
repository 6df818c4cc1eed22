//! Limits shared by several processes, on paused time: each [`Limiter`] is a process, and all of
//! them draw from one ledger.

mod ledger;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use longshore::{ProfileName, TenantId};
use longshore_ai::{BucketCharge, LimitError, Limiter, Measure, ProfileLimits, WaitingTenant, WhenPoolFull};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};

use ledger::{FakeLedger, Trouble};

/// Requests: so many per second, with a burst of one second.
fn requests(bucket: &str, per_second: f64) -> BucketCharge {
    let (bucket, measure) = (bucket.into(), Measure::Requests);
    BucketCharge { bucket, measure, per_minute: per_second * 60.0, burst: per_second, amount: 1.0 }
}

fn tokens(bucket: &str, per_second: f64, amount: f64) -> BucketCharge {
    BucketCharge { measure: Measure::Tokens, amount, ..requests(bucket, per_second) }
}

fn in_secs(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds)
}

async fn take(limiter: &Limiter, needs: &[BucketCharge], seconds: f64) -> Result<(), LimitError> {
    take_for("acme", limiter, needs, seconds).await
}

async fn take_for(
    tenant: &str,
    limiter: &Limiter,
    needs: &[BucketCharge],
    seconds: f64,
) -> Result<(), LimitError> {
    let tenant = waiting(tenant);
    limiter.take(&tenant, needs, in_secs(seconds), WhenPoolFull::Wait).await.map(|_| ())
}

/// A tenant of weight 1; of weight 3 if it is called heavy.
fn waiting(tenant: &str) -> WaitingTenant {
    let weight = if tenant == "heavy" { 3 } else { 1 };
    WaitingTenant { id: TenantId::new(tenant).unwrap(), weight }
}

/// Takes until nothing is left at this moment.
async fn drain(limiter: &Limiter, need: &BucketCharge) -> u32 {
    let need = std::slice::from_ref(need);
    let mut count = 0;
    while limiter.take(&waiting("acme"), need, in_secs(1.0), WhenPoolFull::Refuse).await.is_ok() {
        count += 1;
    }
    count
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_first_is_served_first() {
    let limiter = Limiter::new(FakeLedger::new());
    let need = requests("b", 10.0);
    drain(&limiter, &need).await;
    let mut waiting = JoinSet::new();
    for number in 0..30 {
        let (limiter, need) = (limiter.clone(), need.clone());
        waiting.spawn(async move { take(&limiter, &[need], 60.0).await.map(|()| number) });
        tokio::task::yield_now().await;
    }
    let mut server = Vec::new();
    while let Some(number) = waiting.join_next().await {
        server.push(number.unwrap().unwrap());
    }
    assert_eq!(server, (0..30).collect::<Vec<_>>());
}

/// Starts this many waiters of a tenant; each returns the tenant and when it was served.
fn wait_for(
    waiting: &mut JoinSet<(&'static str, Duration)>,
    limiter: &Limiter,
    (tenant, count): (&'static str, u32),
    needs: &[BucketCharge],
) {
    let begin = Instant::now();
    for _ in 0..count {
        let (limiter, needs) = (limiter.clone(), needs.to_vec());
        waiting.spawn(async move {
            take_for(tenant, &limiter, &needs, 600.0).await.unwrap();
            (tenant, begin.elapsed())
        });
    }
}

/// Five small questions took 37 s beside a tenant with many large ones; their share took 10.
#[tokio::test(start_paused = true)]
async fn a_small_tenant_has_its_share_of_a_limit_beside_a_big_one() {
    let limiter = Limiter::new(FakeLedger::new());
    // Each tenant has a limit of its own besides, which is no reason to be served later.
    let own = |name: &str| requests(name, 1000.0);
    let (large, small) = (tokens("shared", 10.0, 20.0), tokens("shared", 10.0, 10.0));
    let mut waiting = JoinSet::new();
    wait_for(&mut waiting, &limiter, ("big", 30), &[large.clone(), own("big")]);
    sleep(Duration::from_secs(5)).await;
    wait_for(&mut waiting, &limiter, ("small", 5), &[small, own("small")]);
    let mut served = Vec::new();
    while let Some(one) = waiting.join_next().await {
        served.push(one.unwrap());
    }
    let last = |name| served.iter().filter(|(tenant, _)| *tenant == name).map(|(_, at)| *at).max().unwrap();
    // 50 tokens at half of 10 per second, and what is being refilled for a large question before.
    assert!(last("small") <= Duration::from_secs(14), "{served:?}");
    // Nothing of the limit is lost: 650 tokens.
    assert!(last("big") <= Duration::from_secs(70), "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn tenants_that_wait_for_a_limit_are_served_in_turn() {
    let limiter = Limiter::new(FakeLedger::new());
    let need = requests("b", 10.0);
    drain(&limiter, &need).await;
    let mut waiting = JoinSet::new();
    for (tenant, count) in [("a", 12), ("b", 4), ("c", 4)] {
        wait_for(&mut waiting, &limiter, (tenant, count), std::slice::from_ref(&need));
        tokio::task::yield_now().await;
    }
    let mut order = String::new();
    while let Some(one) = waiting.join_next().await {
        order.push_str(one.unwrap().0);
    }
    let count = |part: &str, name: &str| part.matches(name).count();
    for part in [&order[..6], &order[6..12]] {
        assert!(["a", "b", "c"].iter().all(|name| count(part, name) >= 1), "{order}");
        assert!(count(part, "a") <= 3, "{order}");
    }
    assert_eq!((order.len(), &order[14..]), (20, "aaaaaa"), "{order}");
}

#[tokio::test(start_paused = true)]
async fn a_tenants_share_follows_its_weight() {
    let limiter = Limiter::new(FakeLedger::new());
    let need = requests("b", 10.0);
    drain(&limiter, &need).await;
    let mut waiting = JoinSet::new();
    for tenant in ["light", "heavy"] {
        wait_for(&mut waiting, &limiter, (tenant, 30), std::slice::from_ref(&need));
        tokio::task::yield_now().await;
    }
    let mut heavy = 0;
    for _ in 0..20 {
        heavy += usize::from(waiting.join_next().await.unwrap().unwrap().0 == "heavy");
    }
    assert!((14..=16).contains(&heavy), "three of four: {heavy} of 20");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_without_room_does_not_stop_others_of_the_same_profile() {
    let limiter = Limiter::new(FakeLedger::new());
    let (poor, rich, shared) = (requests("a", 1.0), requests("c", 1000.0), requests("p", 1000.0));
    drain(&limiter, &poor).await;
    let begin = Instant::now();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let (limiter, needs) = (limiter.clone(), [poor.clone(), shared.clone()]);
        waiting.spawn(async move { take(&limiter, &needs, 60.0).await });
    }
    tokio::task::yield_now().await;
    for _ in 0..100 {
        take(&limiter, &[rich.clone(), shared.clone()], 60.0).await.unwrap();
    }
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    while let Some(server) = waiting.join_next().await {
        server.unwrap().unwrap();
    }
    assert!(begin.elapsed() > Duration::from_secs(4), "five at one a second");
}

#[tokio::test(start_paused = true)]
async fn all_is_taken_or_nothing() {
    let ledger = FakeLedger::new();
    let limiter = Limiter::new(ledger.clone());
    let (scarce, plenty) = (requests("scarce", 1.0), requests("plenty", 100.0));
    drain(&limiter, &scarce).await;
    for _ in 0..50 {
        let both = [plenty.clone(), scarce.clone()];
        let refused =
            limiter.take(&waiting("acme"), &both[..], in_secs(9.0), WhenPoolFull::Refuse).await.unwrap_err();
        let LimitError::Reached { bucket, wait } = refused else { panic!("{refused}") };
        assert_eq!(bucket, "scarce");
        assert!(wait <= Duration::from_secs(1));
    }
    // A full second's worth, less what may be held elsewhere, and what was drawn once before it was
    // known.
    assert!(ledger.level("plenty").is_none_or(|level| level >= 79.0));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_served_in_time_is_told_at_once() {
    let limiter = Limiter::new(FakeLedger::new());
    let need = requests("b", 0.1);
    drain(&limiter, &need).await;
    let begin = Instant::now();
    let refused = take(&limiter, std::slice::from_ref(&need), 5.0).await.unwrap_err();
    assert!(matches!(refused, LimitError::Reached { .. }), "{refused}");
    assert!(begin.elapsed() < Duration::from_millis(100));
    take(&limiter, &[need], 11.0).await.unwrap();
    assert!(begin.elapsed() > Duration::from_secs(9));
    let nothing = requests("none", 0.0);
    assert!(matches!(take(&limiter, &[nothing], 60.0).await, Err(LimitError::Reached { .. })));
    take(&limiter, &[], 0.0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_when_somebody_who_waits_leaves() {
    let ledger = FakeLedger::new();
    let limiter = Limiter::new(ledger.clone());
    let (large, small) = (tokens("b", 10.0, 8.0), tokens("b", 10.0, 1.0));
    take(&limiter, std::slice::from_ref(&large), 1.0).await.unwrap();
    let begin = Instant::now();
    let gone = timeout(Duration::from_millis(50), take(&limiter, &[large], 60.0)).await;
    assert!(gone.is_err(), "the bucket is empty");
    take(&limiter, std::slice::from_ref(&small), 60.0).await.unwrap();
    assert!(begin.elapsed() < Duration::from_millis(200), "{:?}", begin.elapsed());

    // GatewayServer, but dropped before it could receive the result.
    sleep(Duration::from_secs(5)).await;
    {
        let mut unheard = Box::pin(take(&limiter, std::slice::from_ref(&small), 60.0));
        assert!(futures_once(&mut unheard).await.is_none(), "the store is asked first");
        let before = ledger.draws();
        while ledger.draws() == before {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
    }
    let draws = ledger.draws();
    take(&limiter, &[small], 60.0).await.unwrap();
    assert_eq!(ledger.draws(), draws, "what was taken for the one that left was still there");
}

/// Polls once.
async fn futures_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut *future).poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn tokens_are_charged_by_estimate_and_settled_after() {
    let ledger = FakeLedger::new();
    let limiter = Limiter::new(ledger.clone());
    let needs = [requests("r", 10.0), tokens("t", 100.0, 50.0)];
    let taken = limiter.take(&waiting("acme"), &needs[..], in_secs(1.0), WhenPoolFull::Wait).await.unwrap();
    assert_eq!((ledger.level("r"), ledger.level("t")), (Some(7.0), Some(30.0)));
    taken.settle(10);
    sleep(Duration::from_millis(101)).await;
    assert_eq!(ledger.level("r"), Some(7.0), "a request is a request");
    assert!((ledger.level("t").unwrap() - 80.0).abs() < 1.5, "{:?}", ledger.level("t"));

    let taken = limiter.take(&waiting("acme"), &needs[..], in_secs(1.0), WhenPoolFull::Wait).await.unwrap();
    taken.settle(200);
    sleep(Duration::from_millis(101)).await;
    assert!(ledger.level("t").unwrap() < -100.0, "what was used is owed: {:?}", ledger.level("t"));

    limiter.take(&waiting("acme"), &needs[..1], in_secs(1.0), WhenPoolFull::Wait).await.unwrap().release();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ledger.level("r"), Some(8.0), "never sent, never charged");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for_and_one_that_is_broken_is_told_of() {
    let ledger = FakeLedger::new();
    let limiter = Limiter::new(ledger.clone());
    let need = [requests("b", 10.0)];
    ledger.trouble(Some(Trouble::Away));
    let begin = Instant::now();
    let back = async {
        sleep(Duration::from_secs(3)).await;
        ledger.trouble(None);
    };
    let (server, ()) = tokio::join!(take(&limiter, &need, 60.0), back);
    server.unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(3));
    sleep(Duration::from_secs(1)).await;
    ledger.trouble(Some(Trouble::Away));
    assert_eq!(take(&limiter, &need, 1.0).await, Err(LimitError::Deadline));
    ledger.trouble(Some(Trouble::Broken));
    assert!(matches!(take(&limiter, &need, 60.0).await, Err(LimitError::Store(_))));
}

#[tokio::test(start_paused = true)]
async fn many_questions_ask_the_store_about_ten_times_a_second() {
    let ledger = FakeLedger::new();
    let limiter = Limiter::new(ledger.clone());
    let need = [requests("b", 100_000.0)];
    for _ in 0..2000 {
        take(&limiter, &need, 1.0).await.unwrap();
        advance(Duration::from_millis(1)).await;
    }
    assert!(ledger.draws() < 250, "{}", ledger.draws());
}

#[test]
fn buckets_are_named_by_who_is_limited() {
    let limits = ProfileLimits { requests: Some(60.0), tokens: Some(6000.0), ..ProfileLimits::default() };
    let (tenant, profile) = (TenantId::new("acme").unwrap(), ProfileName::new("fast").unwrap());
    let names = |needs: Vec<BucketCharge>| -> Vec<(String, f64, f64)> {
        let sized = needs.iter().map(|need| need.with_tokens(500));
        sized.map(|need| (need.bucket.to_string(), need.amount, need.burst)).collect()
    };
    assert_eq!(
        names(BucketCharge::of_tenant(&tenant, &limits)),
        [("tenant/acme/requests".into(), 1.0, 1.0), ("tenant/acme/tokens".into(), 500.0, 100.0)]
    );
    let long = ProfileLimits { burst: Some(0.5), requests: None, ..limits };
    assert_eq!(
        names(BucketCharge::of_profile(&tenant, &profile, &long)),
        [("profile/acme/fast/tokens".into(), 500.0, 3000.0)]
    );
    assert!(BucketCharge::of_tenant(&tenant, &ProfileLimits::default()).is_empty());
}

/// Several processes that share a ledger.
fn processes(ledger: &Arc<FakeLedger>, count: usize) -> Vec<Limiter> {
    (0..count).map(|_| Limiter::new(ledger.clone())).collect()
}
