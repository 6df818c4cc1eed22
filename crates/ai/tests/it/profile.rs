//! From profiles to providers.

use std::error::Error;
use std::time::Duration;

use longshore::time::Timestamp;
use longshore_ai::{Cost, Price, PriceMode, Prices, Profile, ProfileError, ProviderName, open_simulated};
use serde_json::json;

use crate::questions::question;

fn profile(fields: serde_json::Value) -> Profile {
    serde_json::from_value(fields).unwrap()
}

#[tokio::test]
async fn a_name_and_a_provider_make_a_profile() {
    let profile = profile(json!({ "name": "dev", "provider": "echo" }));
    assert_eq!((profile.delay, &profile.prices), (Duration::ZERO, &Prices::default()));
    let answer = open_simulated(&profile).unwrap().ask(&question("hi")).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.model.as_str()), ("hi", "echo"));
    assert_eq!(profile.prices.cost(&answer, Timestamp::ZERO, PriceMode::Direct), Cost(0));
}

#[tokio::test(start_paused = true)]
async fn a_scripted_profile_answers_by_its_script_at_its_price() {
    let profile = Profile {
        model: "tiny-1".into(),
        prices: Prices::flat(Price::dollars(1), Price::dollars(10)),
        delay: Duration::from_millis(50),
        script: Some("[[answer]]\nreply = 'fine'\ntokens_out = 100".into()),
        ..Profile::new("review", ProviderName::Scripted)
    };
    let kept: Profile = serde_json::from_str(&serde_json::to_string(&profile).unwrap()).unwrap();
    assert_eq!(kept, profile);
    let provider = open_simulated(&kept).unwrap();
    assert!(provider.is_simulated());
    let answer = provider.ask(&question("12345678")).await.unwrap();
    assert_eq!((answer.model.as_str(), answer.latency_ms), ("tiny-1", 50));
    assert_eq!(kept.prices.cost(&answer, Timestamp::ZERO, PriceMode::Direct), Cost(1_002_000_000));
}

#[test]
fn a_scripted_profile_needs_a_script_that_works() {
    let bare = profile(json!({ "name": "dev", "provider": "scripted" }));
    let error = open_simulated(&bare).err().unwrap();
    assert_eq!(error.to_string(), "profile `dev` is scripted and has no script");
    let error = open_simulated(&Profile { script: Some("[[answer]]".into()), ..bare }).err().unwrap();
    assert!(matches!(error, ProfileError::Script(_)));
    assert!(error.source().unwrap().to_string().starts_with("line 1: "));
}

#[test]
fn a_price_that_is_none_is_refused_with_its_profile() {
    for bad in [json!(-0.5), json!("much"), json!(0.000_000_5)] {
        let fields = json!({ "name": "dev", "provider": "echo", "prices": { "input": 1, "output": bad } });
        assert!(serde_json::from_value::<Profile>(fields).is_err(), "{bad}");
    }
}
