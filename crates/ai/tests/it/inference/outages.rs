//! Providers that fail: breakers, fallbacks, and calls that were not sent.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use longshore::ProfileName;
use longshore::accounts::CallStatus;
use longshore_ai::{Answer, AskError, Code, InferenceOutcome, Provider, Question, Retryability};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::fixture::{InferenceFixture, request};

/// What a [`SwitchedProvider`] does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Answer,
    Fail,
    Hang,
    /// Answers after this time.
    Slow(Duration),
}

/// Answers, fails with 503 or hangs, as the test says; with model `bad` and prompt `bad` it always
/// fails.
pub(crate) struct SwitchedProvider {
    mode: Mutex<Mode>,
    asked: AtomicUsize,
}

impl SwitchedProvider {
    /// The provider behind profile `p` of these tenants.
    pub(crate) async fn install(fixture: &InferenceFixture, tenants: &[&str], more: &Value) -> Arc<Self> {
        let provider = Arc::new(Self { mode: Mutex::new(Mode::Answer), asked: AtomicUsize::new(0) });
        fixture.inference.override_provider(ProfileName::new("p").unwrap(), Arc::clone(&provider) as _);
        for tenant in tenants {
            fixture.scripted(tenant, "p", "[[answer]]\nreply = 'unused'", more.clone()).await;
        }
        provider
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Provider for SwitchedProvider {
    async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mode = *self.mode.lock().unwrap();
        let always_fails = question.model.as_deref() == Some("bad") || question.prompt == "bad";
        match mode {
            Mode::Hang => std::future::pending().await,
            Mode::Slow(time) => {
                tokio::time::sleep(time).await;
                Ok(Answer { text: "slow".to_owned(), ..Answer::default() })
            }
            Mode::Answer if !always_fails => Ok(Answer { text: "fine".to_owned(), ..Answer::default() }),
            _ => {
                let error = AskError::new(Code::ProviderError, "the provider said 503");
                Err(AskError { retry: Retryability::Later, provider_status: Some(503), ..error })
            }
        }
    }
}

/// Inference with a switched provider behind profile `p` of these tenants.
async fn switched(tenants: &[&str], more: Value) -> (InferenceFixture, Arc<SwitchedProvider>) {
    let fixture = InferenceFixture::new();
    let provider = SwitchedProvider::install(&fixture, tenants, &more).await;
    (fixture, provider)
}

/// Asks these prompts at once.
async fn ask_all(
    fixture: &InferenceFixture,
    tenant: &str,
    prompts: impl Iterator<Item = String>,
) -> Vec<InferenceOutcome> {
    join_all(prompts.map(async |prompt| fixture.ask(tenant, "p", &prompt).await)).await
}

fn prompts(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("question {number}"))
}

/// Fails until the breaker of this tenant's profile is open for longer than callers wait.
async fn open_breaker(fixture: &InferenceFixture, provider: &SwitchedProvider, tenant: &str) {
    provider.set(Mode::Fail);
    loop {
        let outcomes = ask_all(fixture, tenant, prompts(10)).await;
        assert!(outcomes.iter().all(|outcome| outcome.result.is_err()));
        if outcomes.iter().all(|outcome| outcome.attempts == 0) {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_breaker_is_open_a_fallback_is_used_at_once() {
    let (fixture, provider) = switched(&["acme"], json!({ "fallback": ["spare"] })).await;
    fixture.scripted("acme", "spare", "[[answer]]\nreply = 'spare'", json!({})).await;
    provider.set(Mode::Fail);
    for outcome in ask_all(&fixture, "acme", prompts(10)).await {
        assert_eq!(outcome.result.unwrap().text, "spare");
    }
    let asked = provider.asked();
    let callers = join_all(prompts(100).map(async |prompt| {
        let started = Instant::now();
        let outcome = fixture.ask("acme", "p", &prompt).await;
        assert_eq!(outcome.result.unwrap().text, "spare");
        started.elapsed()
    }));
    let waited = callers.await.into_iter().filter(|elapsed| !elapsed.is_zero()).count();
    assert!(waited <= 3 && provider.asked() <= asked + 3, "probes at most: {waited}");
    let asked = provider.asked();
    for number in 100..120 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let started = Instant::now();
        let outcome = fixture.ask("acme", "p", &format!("question {number}")).await;
        assert_eq!((outcome.result.unwrap().text.as_str(), started.elapsed()), ("spare", Duration::ZERO));
    }
    assert!(provider.asked() > asked, "some of them were probes");
}

#[tokio::test(start_paused = true)]
async fn callers_of_an_open_breaker_are_woken_by_the_result_of_a_probe() {
    let (fixture, provider) = switched(&["acme"], json!({ "limits": { "max_wait": 60 } })).await;
    provider.set(Mode::Fail);
    let recover = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        provider.set(Mode::Answer);
        Instant::now()
    };
    let callers = join_all((0..100).map(async |number: usize| {
        let outcome = fixture.ask("acme", "p", &format!("question {number}")).await;
        (outcome.result.is_ok(), Instant::now())
    }));
    let (healed, callers) = tokio::join!(recover, callers);
    assert!(callers.iter().all(|(answered, _)| *answered));
    let last = callers.iter().map(|(_, at)| *at - healed).max().unwrap();
    eprintln!("100 callers were answered {last:?} after the outage");
    // An outage of three seconds has open times of half a second, one and two at most; a back-off of
    // at most eight seconds was drawn before the breaker opened.
    assert!(last < Duration::from_secs(12), "{last:?}");
}

/// Asks as an official client does, which repeats a question that the gateway lets it repeat. Returns
/// the number of repeats.
async fn ask_until_answered(fixture: &InferenceFixture, prompt: &str) -> usize {
    for repeats in 0.. {
        match fixture.ask("acme", "p", prompt).await.result {
            Ok(_) => return repeats,
            Err(error) => tokio::time::sleep(error.retry_after.unwrap()).await,
        }
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn a_slow_model_serves_all_callers_soon_after_an_outage() {
    let (fixture, provider) = switched(&["acme"], json!({})).await;
    open_breaker(&fixture, &provider, "acme").await;
    // As long an outage as any: the breaker has been opened again and again.
    for number in 0..20 {
        ask_all(&fixture, "acme", prompts(10)).await;
        tokio::time::sleep(Duration::from_secs(3 + number % 2)).await;
    }
    provider.set(Mode::Slow(Duration::from_secs(8)));
    let healed = Instant::now();
    let callers = join_all(prompts(30).map(|prompt| {
        let fixture = &fixture;
        async move { (ask_until_answered(fixture, &prompt).await, Instant::now()) }
    }));
    let callers = callers.await;
    let last = callers.iter().map(|(_, at)| *at - healed).max().unwrap();
    let repeats: Vec<usize> = callers.iter().map(|(repeats, _)| *repeats).collect();
    assert!(repeats.iter().all(|repeats| *repeats <= 2), "official clients repeat twice: {repeats:?}");
    assert!(last <= Duration::from_secs(5 + 5 + 8), "{last:?}");
}

/// Begins a streamed answer at once, and ends it after ten seconds.
struct SlowStream(AtomicUsize);

#[async_trait]
impl Provider for SlowStream {
    async fn ask(&self, _: &Question) -> Result<Answer, AskError> {
        let error = AskError::new(Code::ProviderError, "the provider said 503");
        Err(AskError { retry: Retryability::Later, provider_status: Some(503), ..error })
    }

    async fn stream(
        &self,
        _: &Question,
        pieces: &tokio::sync::mpsc::Sender<longshore_ai::AnswerPiece>,
    ) -> Result<Answer, AskError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let _ = pieces.send(longshore_ai::AnswerPiece::Text("a".to_owned())).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(Answer { text: "a".to_owned(), ..Answer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_piece_of_an_answer_closes_the_breaker() {
    let fixture = InferenceFixture::new();
    let provider = Arc::new(SlowStream(AtomicUsize::new(0)));
    fixture.inference.override_provider(ProfileName::new("p").unwrap(), Arc::clone(&provider) as _);
    fixture.scripted("acme", "p", "[[answer]]\nreply = 'unused'", json!({})).await;
    while ask_all(&fixture, "acme", prompts(10)).await.iter().any(|outcome| outcome.attempts > 0) {}
    tokio::time::sleep(Duration::from_secs(60)).await;
    let started = Instant::now();
    let callers = join_all(prompts(30).map(|prompt| {
        let fixture = &fixture;
        async move {
            let (sender, mut pieces) = tokio::sync::mpsc::channel(64);
            let request = request("acme", "p", &prompt);
            let first = async {
                while let Some(piece) = pieces.recv().await {
                    if matches!(piece, longshore_ai::AnswerPiece::Text(_)) {
                        return started.elapsed();
                    }
                }
                Duration::MAX
            };
            let ask = async {
                let outcome = fixture.inference.ask(&request, Some(&sender)).await;
                drop(sender);
                outcome
            };
            tokio::join!(first, ask).0
        }
    }));
    let first = callers.await.into_iter().max().unwrap();
    assert!(first < Duration::from_secs(1), "{first:?}");
    assert_eq!(provider.0.load(Ordering::SeqCst), 30);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_fallback_waits_two_seconds_at_most_and_learns_when_to_retry() {
    let (fixture, provider) = switched(&["acme"], json!({})).await;
    open_breaker(&fixture, &provider, "acme").await;
    let started = Instant::now();
    let outcomes = ask_all(&fixture, "acme", prompts(100)).await;
    assert!(started.elapsed() <= Duration::from_secs(2), "{:?}", started.elapsed());
    for outcome in outcomes.into_iter().filter(|outcome| outcome.attempts == 0) {
        let error = outcome.result.unwrap_err();
        assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Later));
        assert!(error.retry_after.is_some_and(|after| after <= Duration::from_secs(30)), "{error:?}");
        let records = outcome.records.iter().filter_map(|record| record.end.as_ref());
        assert!(records.into_iter().all(|end| end.status == CallStatus::Error && end.cost_picos == 0));
    }
}

#[tokio::test(start_paused = true)]
async fn probes_whose_callers_left_free_their_places() {
    let (fixture, provider) = switched(&["acme"], json!({})).await;
    open_breaker(&fixture, &provider, "acme").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    provider.set(Mode::Hang);
    let asked = provider.asked();
    let callers =
        join_all((0..3).map(|_| async {
            timeout(Duration::from_secs(1), fixture.ask("acme", "p", "gone")).await.is_err()
        }));
    assert_eq!(callers.await, [true; 3]);
    assert_eq!(provider.asked(), asked + 3, "three probes were sent");
    provider.set(Mode::Answer);
    let started = Instant::now();
    assert!(fixture.ask("acme", "p", "next").await.result.is_ok());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_one_model_or_credential_holds_up_no_other() {
    let models = json!({ "models": { "bad": {} } });
    let (fixture, provider) = switched(&["acme", "other"], models).await;
    let bad = async |number: usize| {
        let mut request = request("acme", "p", &format!("question {number}"));
        request.question.model = Some("bad".to_owned());
        fixture.inference.ask(&request, None).await
    };
    while join_all((0..10).map(bad)).await.iter().any(|outcome| outcome.attempts > 0) {}
    let started = Instant::now();
    for tenant in ["acme", "other"] {
        assert!(fixture.ask(tenant, "p", "hello").await.result.is_ok());
    }
    open_breaker(&fixture, &provider, "acme").await;
    provider.set(Mode::Answer);
    let waited = started.elapsed();
    assert!(fixture.ask("other", "p", "hello").await.result.is_ok());
    assert_eq!(started.elapsed(), waited, "another tenant's own key");
}

#[tokio::test(start_paused = true)]
async fn one_request_that_always_fails_never_opens_the_breaker() {
    let (fixture, provider) = switched(&["acme"], json!({})).await;
    for outcome in ask_all(&fixture, "acme", (0..30).map(|_| "bad".to_owned())).await {
        assert_eq!(outcome.attempts, 5);
    }
    let started = Instant::now();
    assert!(fixture.ask("acme", "p", "hello").await.result.is_ok());
    assert_eq!((started.elapsed(), provider.asked()), (Duration::ZERO, 151));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_breaker_rejects_takes_nothing_from_the_limits() {
    // Probes and other attempts take some. The store has its own clock: the bucket is not refilled.
    let limits = json!({ "limits": { "requests": 600, "burst": 1 } });
    let (fixture, provider) = switched(&["acme"], limits).await;
    open_breaker(&fixture, &provider, "acme").await;
    for _ in 0..60 {
        let outcomes = ask_all(&fixture, "acme", prompts(100)).await;
        assert!(outcomes.iter().all(|outcome| outcome.result.is_err()));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    provider.set(Mode::Answer);
    tokio::time::sleep(Duration::from_secs(30)).await;
    fixture.ask("acme", "p", "probe").await.result.unwrap();
    let started = Instant::now();
    assert!(ask_all(&fixture, "acme", prompts(20)).await.iter().all(|outcome| outcome.result.is_ok()));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn a_caller_that_leaves_before_its_question_is_sent_is_booked_at_zero() {
    let fixture = InferenceFixture::new();
    let body = json!({
        "provider": "openai", "model": "m", "endpoint": "http://127.0.0.1:9",
        "prices": { "input": 1, "output": 10 },
    });
    fixture.profile("acme", "refused", body).await;
    let request = request("acme", "refused", "hi");
    let gone = timeout(Duration::from_millis(50), fixture.inference.ask(&request, None)).await;
    assert!(gone.is_err(), "it was still trying: {gone:?}");
    let calls = fixture.calls().await;
    let end = calls[0].end.as_ref().unwrap();
    assert_eq!((calls.len(), calls[0].status, end.cost_picos, end.tokens()), (1, CallStatus::Error, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_after_its_question_was_rejected_is_booked_at_zero() {
    let (fixture, provider) = switched(&["acme"], json!({})).await;
    provider.set(Mode::Fail);
    let mut statuses = HashSet::new();
    for number in 0..20 {
        let request = request("acme", "p", &format!("bad {number}"));
        let gone = timeout(Duration::from_millis(1), fixture.inference.ask(&request, None)).await;
        if gone.is_err() {
            statuses.insert(fixture.calls().await.last().unwrap().status);
        }
    }
    assert_eq!(statuses, HashSet::from([CallStatus::Error]));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_not_sent_before_its_deadline_is_no_timeout() {
    let (fixture, provider) = switched(&["acme"], json!({ "limits": { "max_wait": 600 } })).await;
    open_breaker_slowly(&fixture, &provider).await;
    let mut request = request("acme", "p", "late");
    request.question.until = Instant::now() + Duration::from_millis(200);
    let outcome = fixture.inference.ask(&request, None).await;
    assert_eq!((outcome.attempts, outcome.result.unwrap_err().code), (0, Code::ProviderError));
}

/// Opens the breaker of a profile with a long `max_wait`.
async fn open_breaker_slowly(fixture: &InferenceFixture, provider: &SwitchedProvider) {
    provider.set(Mode::Fail);
    let outage = ask_all(fixture, "acme", prompts(10));
    assert!(timeout(Duration::from_secs(20), outage).await.is_err());
}
