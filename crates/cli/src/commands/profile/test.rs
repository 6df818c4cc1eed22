//! `profile test`: tests a profile's document, its key, its provider, and with `--ask` a short
//! question.

use std::time::Duration;

use longshore::{CallId, ProfileName, Scope};
use longshore_ai::{
    AskError, HealthCheck, Inference, InferenceRequest, PriceTable, ProfileDocument, Question,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::resolve_inheritance::resolve_profile;
use super::{ProfileStore, check};
use crate::args::profile::ProfileTestArgs;
use crate::error::{WithHint, hinted, usage};
use crate::inference::{flush, open_inference};
use crate::keyring;
use crate::semaphore_backend;

/// Reads the profile with its templates, opens its key, and checks its provider.
pub async fn run(profiles: &ProfileStore<'_>, typed: &ProfileTestArgs) -> anyhow::Result<()> {
    let name = super::check_name(&typed.named.name)?;
    let record = profiles.require(name).await?;
    if record.body["template"] == Value::Bool(true) {
        return Err(usage(format!("profile `{name}` is a template"))).hint("templates can only be extended");
    }
    let whole = resolve_profile(&*profiles.ledger, &record).await?;
    let table = PriceTable::load(&*profiles.ledger).await?;
    for warning in check::profile(name, &record.body, whole.body(), &table)? {
        profiles.warn(&warning);
    }
    let key = key(profiles, &whole).await?;
    let (mut health, mut reply) = (None, None);
    if !typed.offline {
        let inference = open_inference(&profiles.ledger, profiles.settings)?
            .with_pools(semaphore_backend::registry(profiles.settings).await?);
        let until = Instant::now() + PROVIDER_TIMEOUT;
        let check = HealthCheck::NoCall;
        let found = inference.health(&profiles.tenant, Some(name), until, check).await;
        health = Some(found.map_err(with_hint)?);
        if typed.ask {
            reply = Some(ask(&inference, profiles, name).await?);
        }
    }
    let answer = json!({
        "tenant": profiles.tenant, "profile": name, "document": "ok", "key": key,
        "provider": health, "answer": reply,
    });
    profiles.settings.output.answer(&answer, || {
        let key = key.map_or("it needs no key", |_| "its key opens");
        let health =
            health.map_or("its provider was not called".into(), |health| format!("provider: {health}"));
        let reply = reply.map(|reply| format!("; asked to say OK, it says {reply:?}"));
        format!("profile `{name}` is valid, {key}; {health}{}", reply.unwrap_or_default())
    })
}

/// Timeout of a call to the provider.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(30);

/// Asks a question that costs next to nothing. It is recorded like any other.
async fn ask(
    inference: &Inference,
    profiles: &ProfileStore<'_>,
    name: &ProfileName,
) -> anyhow::Result<String> {
    let until = Instant::now() + PROVIDER_TIMEOUT;
    let question = Question::new(CallId::new().to_string(), "Say OK.", until);
    let question = Question { max_tokens: 16, ..question };
    let inference_request = InferenceRequest::new(profiles.tenant.clone(), Some(name.clone()), question);
    let outcome = inference.ask(&inference_request, None).await;
    inference.record_calls(outcome.records).await;
    flush(inference).await;
    Ok(outcome.result.map_err(with_hint)?.text)
}

fn with_hint(error: AskError) -> anyhow::Error {
    hinted(error.into(), "`longshore ai health` checks all profiles")
}

/// Opens the key, which belongs to the tenant of the document that names it.
async fn key(profiles: &ProfileStore<'_>, whole: &ProfileDocument) -> anyhow::Result<Option<&'static str>> {
    let (Some(key), Some(owner)) = (whole.body()["key"].as_str(), whole.key_owner()) else {
        return Ok(None);
    };
    let vault = keyring::open(profiles.ledger.clone(), profiles.settings)?;
    vault.open(&Scope::Tenant(owner.clone()), owner, &key.parse()?).await?;
    Ok(Some("ok"))
}
