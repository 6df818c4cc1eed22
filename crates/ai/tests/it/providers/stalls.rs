//! Providers that begin an answer and stop sending.

use std::sync::Arc;
use std::time::Duration;

use longshore::HumanDuration;
use longshore_ai::{BillingStatus, Code, Profile, Provider, ProviderName, RetrySettings, Retryability};
use longshore_testkit::fake_ai::{FakeAi, FakeBehaviour};

use super::fixture::{open_at, question, stream};

/// Longer than any test.
const STALL: Duration = Duration::from_secs(3600);

async fn impatient() -> (FakeAi, Arc<dyn Provider>) {
    let fake = FakeAi::start().await.unwrap();
    let idle_timeout = Some(HumanDuration(Duration::from_millis(300)));
    let retry = RetrySettings { idle_timeout, ..RetrySettings::default() };
    let profile = Profile { model: "fake-1".into(), retry, ..Profile::new("p", ProviderName::Openai) };
    let provider = open_at(profile, &fake.url());
    (fake, provider)
}

#[tokio::test]
async fn a_body_that_stops_arriving_is_given_up_long_before_the_deadline() {
    let (fake, provider) = impatient().await;
    for act in [FakeBehaviour::Drip(STALL), FakeBehaviour::Hang] {
        fake.push_behaviours([act.clone()]);
        let error = provider.ask(&question("hi")).await.unwrap_err();
        let actual = (error.code, error.retry, error.billing);
        assert_eq!(actual, (Code::Timeout, Retryability::Never, BillingStatus::Unknown), "{act:?}");
        assert!(error.message.contains("sent nothing for 300 ms"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_stream_that_stops_arriving_is_given_up_long_before_the_deadline() {
    let (fake, provider) = impatient().await;
    for act in [FakeBehaviour::Drip(STALL), FakeBehaviour::Hang] {
        fake.push_behaviours([act.clone()]);
        let error = stream(&*provider, &question("hi")).await.0.unwrap_err();
        assert_eq!((error.code, error.retry), (Code::Timeout, Retryability::Never), "{act:?}");
        assert_ne!(error.billing, BillingStatus::Nothing);
        assert!(error.message.contains("sent nothing for 300 ms"), "{}", error.message);
    }
}

#[tokio::test]
async fn an_answer_that_arrives_slowly_is_not_given_up() {
    let (fake, provider) = impatient().await;
    fake.push_behaviours([FakeBehaviour::Drip(Duration::from_millis(2))]);
    assert_eq!(provider.ask(&question("hi")).await.unwrap().text, "hi");
}
