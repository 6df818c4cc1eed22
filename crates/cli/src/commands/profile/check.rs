//! Checks a profile's document. Pure: keys and profiles that the document names are not looked up.
//!
//! No error repeats a value that may be a secret: keys, headers and addresses.

use std::collections::BTreeMap;

use longshore::{HumanDuration, KeyName, ProfileName};
use longshore_ai::{
    ANY_MODEL, ApiOptions, HttpOptions, HttpOptionsError, KeyRef, PriceTable, Prices, Profile, ProfileLimits,
    ProviderName, RetrySettings, SecretString,
};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commands::now;
use crate::commands::price::old_table;
use crate::error::{WithHint, hinted, suggestion, usage};

/// Fields of a document.
const FIELDS: [&str; 22] = [
    "provider",
    "model",
    "prices",
    "models",
    "delay",
    "script",
    "endpoint",
    "key",
    "wire",
    "max_tokens",
    "temperature",
    "system",
    "on_unsupported",
    "limits",
    "retry",
    "proxy",
    "proxy_key",
    "ca",
    "fallback",
    "pool",
    "extends",
    "template",
];

/// Headers that carry keys.
const SECRET_HEADERS: [&str; 5] =
    ["authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key"];

const DOCS_HINT: &str = "docs/ai-profiles.md lists every field of a profile";

/// Rejects unknown fields. Unknown fields of sections are rejected with the sections.
pub fn check_fields(body: &Value) -> anyhow::Result<()> {
    for key in body.as_object().into_iter().flat_map(|body| body.keys()) {
        if key == "name" {
            return Err(usage("a profile's document does not hold its name"))
                .hint("leave `name` out: it is named on the command line");
        }
        if !FIELDS.contains(&key.as_str()) {
            return Err(unknown_word("part", key, &FIELDS));
        }
    }
    Ok(())
}

fn unknown_word(what: &str, given: &str, known: &[&str]) -> anyhow::Error {
    let suggestion = suggestion(given, known.iter().copied());
    let known = format!("known are {}", known.join(", "));
    hinted(usage(format!("unknown {what} `{given}`{suggestion}")), known)
}

/// Checks a document (`body`) and the result with its templates (`whole`). Returns warnings.
pub fn profile(
    name: &ProfileName,
    body: &Value,
    whole: &Value,
    table: &PriceTable,
) -> anyhow::Result<Vec<String>> {
    let is_template = body["template"] == Value::Bool(true);
    if !body["template"].is_boolean() && !body["template"].is_null() {
        return Err(usage("`template` is true or false")).hint(DOCS_HINT);
    }
    section::<Prices>(whole, "prices")?;
    section::<BTreeMap<String, Prices>>(whole, "models")?;
    section::<ApiOptions>(whole, "wire")?;
    section::<ProfileLimits>(whole, "limits")?;
    section::<RetrySettings>(whole, "retry")?;
    key(whole, "key")?;
    key(whole, "proxy_key")?;
    let profile = read(name, whole, is_template)?;
    numbers(&profile)?;
    headers(&profile)?;
    route(&profile)?;
    if !is_template {
        complete(&profile)?;
    }
    let unencrypted = endpoint(&profile)?;
    let old_prices = if is_template { None } else { prices(profile, table)? };
    Ok(unencrypted.into_iter().chain(old_prices).collect())
}

/// The vault keys that the document itself names.
pub fn vault_keys(body: &Value) -> impl Iterator<Item = KeyName> {
    ["key", "proxy_key"].into_iter().filter_map(|part| match body[part].as_str()?.parse() {
        Ok(KeyRef::Vault { name, .. }) => Some(name),
        _ => None,
    })
}

/// The fallback profiles that the document itself names.
pub fn fallback(body: &Value) -> Vec<ProfileName> {
    let names = body["fallback"].as_array().into_iter().flatten();
    names.filter_map(|name| ProfileName::new(name.as_str()?).ok()).collect()
}

/// Parses a complete document. A template may leave out its provider.
pub fn read(name: &ProfileName, whole: &Value, is_template: bool) -> anyhow::Result<Profile> {
    let mut whole = whole.clone();
    if let Some(whole) = whole.as_object_mut() {
        whole.remove("template");
        whole.insert("name".to_owned(), json!(name));
        if is_template {
            whole.entry("provider").or_insert(json!("echo"));
        }
    }
    if whole["provider"].is_null() {
        return Err(usage("a profile needs a provider"))
            .hint(format!("--provider is one of {}", providers().join(", ")));
    }
    let profile = Profile::deserialize(whole).map_err(|error| explain(&error.to_string()))?;
    for other in &profile.fallback {
        ProfileName::new(other)?;
    }
    Ok(profile)
}

fn providers() -> Vec<&'static str> {
    ProviderName::ALL.iter().map(|provider| provider.as_str()).collect()
}

fn section<'a, T: Deserialize<'a>>(whole: &'a Value, name: &str) -> anyhow::Result<()> {
    match whole.get(name) {
        None | Some(Value::Null) => Ok(()),
        Some(section) => T::deserialize(section)
            .map(|_| ())
            .map_err(|error| explain(&error.to_string()).context(format!("in `{name}`"))),
    }
}

/// The parser's message, with a suggestion for an unknown word.
fn explain(message: &str) -> anyhow::Error {
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match words.as_slice() {
        [given, known @ ..] if message.starts_with("unknown field") => unknown_word("part", given, known),
        [given, known @ ..] if message.starts_with("unknown variant") => unknown_word("value", given, known),
        _ => hinted(usage(message), DOCS_HINT),
    }
}

fn key(whole: &Value, part: &str) -> anyhow::Result<()> {
    match whole.get(part) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(key)) => match key.parse::<KeyRef>() {
            Ok(_) => Ok(()),
            Err(error) => Err(usage(error.to_string())).hint(error.hint().unwrap_or_default()),
        },
        Some(_) => {
            Err(usage(format!("`{part}` is not text"))).hint("it is a key's name, env:NAME or file:PATH")
        }
    }
}

fn numbers(profile: &Profile) -> anyhow::Result<()> {
    let limits = &profile.limits;
    let above_zero = |number: Option<f64>| number.is_none_or(|n| n.is_finite() && n > 0.0);
    let given = [("requests", limits.requests), ("tokens", limits.tokens), ("burst", limits.burst)];
    for (name, number) in given {
        if !above_zero(number) {
            return Err(usage(format!("`limits.{name}` is not above zero")))
                .hint("to disable a profile: `longshore profile suspend`");
        }
    }
    if limits.in_flight == Some(0) || profile.max_tokens == Some(0) {
        return Err(usage("`limits.in_flight` and `max_tokens` are at least 1")).hint(DOCS_HINT);
    }
    let RetrySettings { attempts, base, idle_timeout } = &profile.retry;
    let is_zero = |time: &Option<HumanDuration>| time.is_some_and(|HumanDuration(time)| time.is_zero());
    if *attempts == Some(0) || is_zero(base) || is_zero(idle_timeout) {
        return Err(usage(
            "`retry.attempts` is at least 1, `retry.base` and `retry.idle_timeout` above zero",
        ))
        .hint("`--attempts 1` asks once");
    }
    match profile.temperature {
        Some(t) if !(0.0..=2.0).contains(&t) => {
            Err(usage(format!("`temperature` {t} is not between 0 and 2"))).hint(DOCS_HINT)
        }
        _ => Ok(()),
    }
}

fn headers(profile: &Profile) -> anyhow::Result<()> {
    let names = profile.wire.headers.keys();
    match names.map(|name| name.to_ascii_lowercase()).find(|name| SECRET_HEADERS.contains(&name.as_str())) {
        Some(name) => Err(usage(format!("header `{name}` carries a key, and profiles hold no secrets")))
            .hint("`longshore key add` stores it; --key names it"),
        None => Ok(()),
    }
}

/// Checks the proxy and the certificates.
fn route(profile: &Profile) -> anyhow::Result<()> {
    // The key is opened when it is used.
    let proxy_key = profile.proxy_key.as_ref().map(|_| SecretString::from("user:password"));
    let options = HttpOptions::new(profile.proxy.as_deref(), proxy_key, profile.ca.as_deref());
    let hint = match &options {
        Err(HttpOptionsError::ProxyPassword) => {
            "`longshore key add` stores USER:PASSWORD; --proxy-key names it"
        }
        Err(HttpOptionsError::Ca(_)) => "--ca-file FILE reads certificates in PEM format",
        _ => "as --proxy http://proxy.example:3128",
    };
    options.map(drop).map_err(|error| hinted(usage(error.to_string()), hint))
}

/// Checks what a profile needs to be usable.
fn complete(profile: &Profile) -> anyhow::Result<()> {
    match profile.provider {
        ProviderName::Echo | ProviderName::Scripted => {
            longshore_ai::open_simulated(profile).hint(DOCS_HINT)?;
        }
        other if profile.model.is_empty() => {
            return Err(usage(format!("{other} needs a model"))).hint("--model names it");
        }
        _ => {}
    }
    Ok(())
}

/// Rejects an invalid endpoint; warns of one to which keys and prompts go unencrypted.
fn endpoint(profile: &Profile) -> anyhow::Result<Option<String>> {
    let Some(text) = &profile.endpoint else { return Ok(None) };
    let bad = |why: &str| Err(usage(format!("the endpoint {why}"))).hint("as https://api.example.com");
    let Ok(url) = Url::parse(text) else { return bad("is not a URL") };
    if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
        return bad("does not begin with https:// or http:// and a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return bad("holds a password, and profiles hold no secrets");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return bad("has a query or a fragment; it is where the API begins");
    }
    let open = url.scheme() == "http" && !is_loopback(&url);
    Ok(open.then(|| {
        let host = url.host_str().unwrap_or_default();
        format!("http:// to {host}: keys and prompts travel in the clear; https:// would hide them")
    }))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Rejects a model of a paid provider without a known price; warns of an old price table.
fn prices(mut profile: Profile, table: &PriceTable) -> anyhow::Result<Option<String>> {
    let unstated = |profile: &Profile| -> Vec<String> {
        let own = (!profile.prices.is_stated()).then(|| profile.model.clone());
        let further = profile.models.iter().filter(|(model, _)| *model != ANY_MODEL);
        let further = further.filter(|(_, prices)| !prices.is_stated()).map(|(model, _)| model.clone());
        own.into_iter().chain(further).collect()
    };
    if !profile.is_billed() || (unstated(&profile).is_empty() && !profile.models.contains_key(ANY_MODEL)) {
        return Ok(None);
    }
    table.complete(&mut profile);
    match unstated(&profile).first() {
        None => Ok(old_table(table, now())),
        Some(model) => {
            let message = format!("no price is known of {}'s model `{model}`", profile.provider);
            let hint = if *model == profile.model {
                "--price-input and --price-output state it; `longshore price list` shows the known models"
                    .to_owned()
            } else {
                format!(
                    "--also-model {model}=IN/OUT states it; `longshore price list` shows the known models"
                )
            };
            Err(usage(message)).hint(hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(body: Value) -> anyhow::Result<Vec<String>> {
        check_fields(&body)?;
        profile(&ProfileName::new("p").unwrap(), &body, &body, PriceTable::shipped())
    }

    /// Destructured without `..`, so that a new field is noticed here.
    #[test]
    fn every_part_of_a_profile_is_known() {
        let Profile {
            name: _,
            provider: _,
            model: _,
            prices: _,
            models: _,
            delay: _,
            script: _,
            endpoint: _,
            key: _,
            wire: _,
            max_tokens: _,
            temperature: _,
            system: _,
            on_unsupported: _,
            limits: _,
            retry: _,
            proxy: _,
            proxy_key: _,
            ca: _,
            fallback: _,
            pool: _,
        } = Profile::new("p", ProviderName::Echo);
        assert_eq!(FIELDS.len(), 20 + 2, "all but the name, and two of documents");
    }

    #[test]
    fn what_makes_no_sense_is_explained() {
        for (body, words) in [
            (json!({}), "needs a provider"),
            (json!({ "provider": "opnai" }), "did you mean `openai`?"),
            (json!({ "provider": "openai" }), "needs a model"),
            (json!({ "provider": "echo", "modle": "m" }), "did you mean `model`?"),
            (json!({ "provider": "echo", "limits": { "request": 1 } }), "did you mean `requests`?"),
            (json!({ "provider": "echo", "limits": { "requests": 0 } }), "not above zero"),
            (json!({ "provider": "echo", "limits": { "max_wait": -1 } }), "not a length of time"),
            (json!({ "provider": "echo", "prices": { "input": -1, "output": 1 } }), "is no price"),
            (json!({ "provider": "echo", "prices": { "input": 1 } }), "in `prices`"),
            (json!({ "provider": "echo", "temperature": 3 }), "between 0 and 2"),
            (json!({ "provider": "echo", "on_unsupported": "ignore" }), "unknown value `ignore`"),
            (json!({ "provider": "echo", "template": "yes" }), "true or false"),
            (json!({ "provider": "echo", "fallback": ["a b"] }), "may only hold"),
            (json!({ "provider": "echo", "name": "p" }), "does not hold its name"),
            (json!({ "provider": "echo", "endpoint": "api" }), "is not a URL"),
            (json!({ "provider": "echo", "endpoint": "ftp://x" }), "https://"),
            (json!({ "provider": "echo", "endpoint": "https://a:b@c" }), "a password"),
            (json!({ "provider": "scripted" }), "has no script"),
            (json!({ "provider": "echo", "retry": { "tries": 1 } }), "unknown part `tries`"),
            (json!({ "provider": "echo", "retry": { "base": "soon" } }), "not a length of time"),
            (json!({ "provider": "echo", "retry": { "attempts": 0 } }), "at least 1"),
            (json!({ "provider": "echo", "proxy": "https://p" }), "URL of an HTTP proxy"),
            (json!({ "provider": "echo", "proxy_key": "p" }), "there is none"),
            (json!({ "provider": "echo", "ca": "none" }), "no certificates"),
        ] {
            let error = format!("{:#}", checked(body.clone()).unwrap_err());
            assert!(error.contains(words), "{body}: {error}");
        }
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_refused_and_not_repeated() {
        let secret = "sk-marked-1234567890";
        for body in [
            json!({ "provider": "openai", "model": "m", "key": secret }),
            json!({ "provider": "openai", "model": "m", "endpoint": format!("https://{secret}@x") }),
            json!({ "provider": "openai", "model": "m", "proxy": format!("http://user:{secret}@x:1") }),
            json!({ "provider": "openai", "model": "m", "proxy": "http://x:1", "proxy_key": secret }),
            json!({ "provider": "openai", "model": "m",
                    "wire": { "headers": { "Authorization": format!("Bearer {secret}") } } }),
        ] {
            let error = format!("{:#}", checked(body).unwrap_err());
            assert!(!error.contains("marked"), "{error}");
        }
    }

    #[test]
    fn what_is_doubtful_is_warned_of() {
        let at = |endpoint: &str| json!({ "provider": "openai", "model": "m", "endpoint": endpoint });
        for quiet in ["http://localhost:1", "http://127.0.0.1:1/v1", "http://[::1]", "https://x.example"] {
            assert!(checked(at(quiet)).unwrap().is_empty(), "{quiet}");
        }
        assert!(checked(at("http://10.0.0.1")).unwrap()[0].contains("in the clear"));
    }

    #[test]
    fn a_model_of_a_paid_provider_needs_a_price_typed_or_known() {
        let body =
            |model: &str, models: Value| json!({ "provider": "openai", "model": model, "models": models });
        for known in [body("gpt-5", json!({})), body("gpt-5", json!({ "gpt-5-mini": {}, "*": {} }))] {
            assert!(checked(known.clone()).unwrap().is_empty(), "{known}");
        }
        let mut free = body("m", json!({}));
        free["prices"] = json!({ "input": 0, "output": 0 });
        assert!(checked(free).unwrap().is_empty(), "stated, although 0");
        for (unknown, model) in [(body("m", json!({})), "`m`"), (body("gpt-5", json!({ "n": {} })), "`n`")] {
            let error = format!("{:#}", checked(unknown).unwrap_err());
            assert!(error.contains("no price is known") && error.contains(model), "{error}");
        }
    }
}
