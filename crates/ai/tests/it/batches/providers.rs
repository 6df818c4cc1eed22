//! The batch APIs of both providers.

use longshore_ai::batches::{self, BatchState, FindResult, was_refused};
use longshore_ai::{Code, Http, PriceMode, Prices, Profile, ProfileError, ProviderName, Retryability};
use longshore_testkit::fake_ai::{BatchItemFailure, BatchPlan, FakeBehaviour};

use super::fixture::{BOTH, BatchFixture, item, mark};

#[tokio::test]
async fn answers_are_matched_by_id_whatever_their_order() {
    for name in BOTH {
        let fixture = BatchFixture::of(name).await;
        fixture.fake.push_batch_plans([BatchPlan { polls: 2, ..BatchPlan::default() }]);
        let ticket = fixture.submit(&["a", "b", "c"]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(fixture.poll(&ticket).await, BatchState::Running { done: 0, total: 3 }, "{name}");
        }
        assert_eq!(fixture.poll(&ticket).await, BatchState::Ended, "{name}");
        let results = fixture.results(&ticket).await.unwrap();
        assert_eq!(results.len(), 3, "{name}");
        for (id, result) in results {
            let answer = result.unwrap();
            assert!(answer.text.contains(&format!("about {id}")), "{name}: {}", answer.text);
            assert_eq!((answer.tokens_in, answer.tokens_out), (11, 7), "{name}");
            assert_eq!((answer.tier.as_deref(), answer.estimated), (None, false), "{name}");
        }
    }
}

#[tokio::test]
async fn an_answer_of_a_batch_costs_the_batchs_price() {
    let fixture = BatchFixture::of(ProviderName::Anthropic).await;
    let ticket = fixture.submit(&["a"]).await.unwrap();
    let answer = fixture.results(&ticket).await.unwrap().remove("a").unwrap().unwrap();
    let prices: Prices = serde_json::from_str(r#"{ "input": 1, "output": 2, "batch": 0.5 }"#).unwrap();
    let now = longshore::Timestamp::parse("2026-11-01T00:00:00Z").unwrap();
    let (alone, in_batch) =
        (prices.cost(&answer, now, PriceMode::Direct), prices.cost(&answer, now, PriceMode::Batch));
    assert!(alone.0 > 0);
    assert_eq!(in_batch.0 * 2, alone.0);
}

#[tokio::test]
async fn what_expired_may_be_asked_again_and_what_was_refused_says_why() {
    for name in BOTH {
        let fixture = BatchFixture::of(name).await;
        fixture.fake.push_batch_plans([BatchPlan::with([
            ("a", BatchItemFailure::Expired),
            ("b", BatchItemFailure::Error(400)),
            ("c", BatchItemFailure::Error(529)),
            ("d", BatchItemFailure::Missing),
        ])]);
        let ticket = fixture.submit(&["a", "b", "c", "d", "e"]).await.unwrap();
        assert_eq!(fixture.poll(&ticket).await, BatchState::Ended, "{name}");
        let results = fixture.results(&ticket).await.unwrap();
        let error = |id: &str| results[id].clone().unwrap_err();
        assert_eq!(error("a").retry, Retryability::Later, "{name}: {}", error("a"));
        assert!(error("a").message.contains("expired"), "{name}: {}", error("a"));
        assert_eq!((error("b").code, error("b").retry), (Code::InvalidRequest, Retryability::Never));
        assert_eq!((error("c").code, error("c").retry), (Code::ProviderError, Retryability::Later));
        assert!(!results.contains_key("d"), "{name}");
        assert!(results["e"].is_ok(), "{name}");
    }
}

#[tokio::test]
async fn a_batch_that_fails_as_a_whole_says_whether_later_may_work() {
    for (code, again) in [
        ("token_limit_exceeded", Retryability::Later),
        ("billing_hard_limit_reached", Retryability::AfterTopUp),
        ("invalid_json_line", Retryability::Never),
    ] {
        let fixture = BatchFixture::of(ProviderName::Openai).await;
        fixture.fake.push_batch_plans([BatchPlan { fails_with: Some(code.into()), ..BatchPlan::default() }]);
        let ticket = fixture.submit(&["a"]).await.unwrap();
        let BatchState::Failed(error) = fixture.poll(&ticket).await else { panic!("it did not fail") };
        assert_eq!(error.retry, again, "{code}: {error}");
    }
}

#[tokio::test]
async fn a_batch_whose_ticket_was_lost_is_found_again() {
    for name in BOTH {
        let fixture = BatchFixture::of(name).await;
        fixture.submit(&["x", "y"]).await.unwrap();
        // OpenAI's takes two requests: the file arrives, the batch is created, the response is
        // lost.
        let heard = if name == ProviderName::Openai { vec![FakeBehaviour::default()] } else { Vec::new() };
        fixture.fake.push_behaviours(heard.into_iter().chain([FakeBehaviour::ExecuteThenClose]));
        let lost = fixture.provider.submit(&[item("a"), item("b")], "mark-2").await.unwrap_err();
        assert!(!was_refused(&lost), "{name}: {lost}");
        let found = fixture.provider.find(&mark("mark-2", &["a", "b"])).await.unwrap();
        let FindResult::Submitted(ticket) = found else { panic!("{name}: {found:?}") };
        let results = fixture.results(&ticket).await.unwrap();
        assert_eq!(results.keys().collect::<Vec<_>>(), ["a", "b"], "{name}");
        let never = fixture.provider.find(&mark("mark-3", &["p", "q"])).await.unwrap();
        assert_eq!(never, FindResult::NotSubmitted, "{name}");
    }
}

#[tokio::test]
async fn a_batch_without_a_name_is_recognised_once_it_has_ended() {
    let fixture = BatchFixture::of(ProviderName::Anthropic).await;
    fixture.fake.push_batch_plans([BatchPlan { polls: 1, ..BatchPlan::default() }]);
    let ticket = fixture.submit(&["a", "b"]).await.unwrap();
    let ours = mark("mark-1", &["a", "b"]);
    assert_eq!(fixture.provider.find(&ours).await.unwrap(), FindResult::Unknown);
    // A batch of another size is not ours.
    assert_eq!(fixture.provider.find(&mark("m", &["a"])).await.unwrap(), FindResult::NotSubmitted);
    fixture.poll(&ticket).await;
    assert_eq!(fixture.provider.find(&ours).await.unwrap(), FindResult::Submitted(ticket));
}

#[tokio::test]
async fn a_refused_batch_is_known_not_to_be_there() {
    for name in BOTH {
        let fixture = BatchFixture::of(name).await;
        fixture.fake.push_behaviours([FakeBehaviour::error(429)]);
        let refused = fixture.submit(&["a"]).await.unwrap_err();
        assert!(was_refused(&refused), "{name}: {refused}");
        fixture.fake.push_behaviours([FakeBehaviour::error(500)]);
        assert!(!was_refused(&fixture.submit(&["a"]).await.unwrap_err()), "{name}");
        assert!(fixture.fake.batches().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn results_that_break_off_are_an_error() {
    for name in BOTH {
        let fixture = BatchFixture::of(name).await;
        let ticket = fixture.submit(&["a"]).await.unwrap();
        let looked = if name == ProviderName::Openai { vec![FakeBehaviour::default()] } else { Vec::new() };
        fixture.fake.push_behaviours(looked.into_iter().chain([FakeBehaviour::Truncated]));
        assert!(fixture.results(&ticket).await.is_err(), "{name}");
        assert_eq!(fixture.results(&ticket).await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_cancelled_batch_ends() {
    for name in BOTH {
        let fixture = BatchFixture::of(name).await;
        fixture.fake.push_batch_plans([BatchPlan { polls: 99, ..BatchPlan::default() }]);
        let ticket = fixture.submit(&["a"]).await.unwrap();
        fixture.provider.cancel(&ticket).await.unwrap();
        assert_eq!(fixture.poll(&ticket).await, BatchState::Ended, "{name}");
    }
}

#[tokio::test]
async fn what_is_sent_is_what_was_measured() {
    let fixture = BatchFixture::of(ProviderName::Anthropic).await;
    let size = fixture.provider.size(&item("a")).bytes;
    fixture.submit(&["a"]).await.unwrap();
    let sent = fixture.fake.requests().pop().unwrap().body.to_string().len();
    assert_eq!(sent, size - 1 + r#"{"requests":[]}"#.len());
}

#[test]
fn a_provider_without_batches_says_so() {
    let ollama = Profile::new("p", ProviderName::Ollama);
    let error = batches::open(&ollama, None, &Http::new()).err().unwrap();
    assert!(matches!(error, ProfileError::NoBatches(..)), "{error}");
}
