//! No window exceeds limit + burst, and little of what is allowed is lost.

use std::sync::Mutex;

use longshore_ai::TokenReservation;
use proptest::prelude::*;
use tokio::time::sleep_until;

use super::*;

/// Times and amounts of usage.
type Used = Vec<(Instant, f64)>;

/// A process's actions: waits so many milliseconds, then requests so much, without waiting for it.
type Script = Vec<(u64, f64)>;

async fn play(scripts: Vec<Script>, need: BucketCharge, delay: Duration) -> Used {
    let ledger = FakeLedger::slow(delay);
    let limiters = processes(&ledger, scripts.len());
    let used = Arc::new(Mutex::new(Used::new()));
    let mut running = JoinSet::new();
    for (limiter, script) in limiters.into_iter().zip(scripts) {
        let (used, need) = (used.clone(), need.clone());
        running.spawn(async move {
            let mut asked = JoinSet::new();
            for (pause, amount) in script {
                sleep(Duration::from_millis(pause)).await;
                let need = BucketCharge { amount, ..need.clone() };
                let (limiter, used) = (limiter.clone(), used.clone());
                asked.spawn(async move {
                    let taken: Result<TokenReservation, LimitError> =
                        limiter.take(&waiting("acme"), [need], in_secs(5.0), WhenPoolFull::Wait).await;
                    if taken.is_ok() {
                        used.lock().unwrap().push((Instant::now(), amount));
                    }
                });
            }
            asked.join_all().await;
        });
    }
    running.join_all().await;
    let mut used = std::mem::take(&mut *used.lock().unwrap());
    used.sort_by_key(|(at, _)| *at);
    used
}

/// By how much the worst window exceeds its refill.
fn worst(used: &Used, per_second: f64) -> f64 {
    let mut worst = 0.0_f64;
    for begin in 0..used.len() {
        let mut sum = 0.0;
        for (at, amount) in &used[begin..] {
            sum += amount;
            worst = worst.max(sum - per_second * (*at - used[begin].0).as_secs_f64());
        }
    }
    worst
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_window_exceeds_limit_and_burst_however_many_processes_draw(
        scripts in prop::collection::vec(
            prop::collection::vec((prop_oneof![Just(0), 0_u64..20, 0_u64..400], 1_u32..4), 1..60),
            1..7,
        ),
        per_second in prop::sample::select(vec![1.0, 7.0, 30.0, 100.0, 1000.0]),
        burst in 0.0_f64..3.0,
        delay in 0_u64..60,
    ) {
        let need = BucketCharge { burst: per_second * burst, ..requests("b", per_second) };
        let scripts = scripts.into_iter().map(|script| {
            script.into_iter().map(|(pause, amount)| (pause, f64::from(amount))).collect()
        });
        let (scripts, played) = (scripts.collect(), need.clone());
        let used = paused().block_on(play(scripts, played, Duration::from_millis(delay)));
        // A bucket holds at least one request, and the largest question is admitted when it is
        // full.
        let most = need.burst.max(3.0 + per_second * 0.2);
        prop_assert!(worst(&used, per_second) <= most + 1e-3, "{} > {most}", worst(&used, per_second));
    }
}

#[tokio::test(start_paused = true)]
async fn processes_that_want_more_than_there_is_get_nearly_all_of_it() {
    let script = || (0..600).map(|_| (10, 1.0)).collect::<Script>();
    let begin = Instant::now();
    let used =
        play(vec![script(), script(), script(), script()], requests("b", 100.0), Duration::from_millis(4))
            .await;
    let seconds = (used.last().unwrap().0 - begin).as_secs_f64();
    assert!(used.len() as f64 > 0.95 * 100.0 * seconds, "{} in {seconds}", used.len());
    assert!(worst(&used, 100.0) <= 100.0 + 1e-3);
}

#[tokio::test(start_paused = true)]
async fn processes_that_want_less_than_there_is_hardly_wait() {
    // Ten processes, together 67 questions a second, of 100: leases that expire must not use up the
    // rest.
    let script = || (0..100).map(|_| (150, 1.0)).collect::<Script>();
    let begin = Instant::now();
    let used =
        play((0..10).map(|_| script()).collect(), requests("b", 100.0), Duration::from_millis(4)).await;
    assert_eq!(used.len(), 1000, "all of them");
    let seconds = (used.last().unwrap().0 - begin).as_secs_f64();
    assert!(seconds < 15.1, "the last was asked after 15 s and served after {seconds}");
}

/// The worst case: an idle bucket is full, five processes draw in advance all that they may hold
/// and keep it as long as they may, the bucket refills meanwhile, and then all of it is used at
/// once.
#[tokio::test(start_paused = true)]
async fn not_even_what_was_kept_to_the_last_moment_exceeds_the_burst() {
    let need = BucketCharge { burst: 50.0, ..requests("b", 100.0) };
    let ledger = FakeLedger::slow(Duration::from_millis(2));
    let limiters = processes(&ledger, 5);
    let mut used = Used::new();
    for _ in 0..3 {
        sleep(Duration::from_secs(3)).await;
        let started = Instant::now();
        for limiter in &limiters {
            leave_four(limiter, &need).await;
        }
        sleep_until(started + Duration::from_millis(200)).await;
        let mut running = JoinSet::new();
        for limiter in &limiters {
            let (limiter, need) = (limiter.clone(), need.clone());
            running.spawn(async move {
                let mut used = Used::new();
                while take_now(&limiter, &need).await {
                    used.push((Instant::now(), 1.0));
                }
                used
            });
        }
        let round = running.join_all().await.concat();
        let kept = round.iter().filter(|(at, _)| *at == started + Duration::from_millis(200)).count();
        assert_eq!(kept, 20, "what was drawn ahead is there to the end");
        used.extend(round);
    }
    used.sort_by_key(|(at, _)| *at);
    let most = worst(&used, 100.0);
    assert!(most <= 50.0 + 1e-3, "{most}");
    assert!(most > 49.5, "a bound that is not reached proves nothing: {most}");
}

/// Four ask and are dropped while the store is called: what it returns is kept.
async fn leave_four(limiter: &Limiter, need: &BucketCharge) {
    let need = std::slice::from_ref(need);
    let four = async {
        let take = || take(limiter, need, 1.0);
        let _ = tokio::join!(take(), take(), take(), take());
    };
    assert!(timeout(Duration::from_micros(1), four).await.is_err());
}

async fn take_now(limiter: &Limiter, need: &BucketCharge) -> bool {
    limiter
        .take(&waiting("acme"), std::slice::from_ref(need), in_secs(1.0), WhenPoolFull::Refuse)
        .await
        .is_ok()
}
