//! The schemas and the types accept the same messages.

use std::time::Duration;

use jsonschema::Validator;
use longshore::{BatchId, Priority, ProfileName, TenantId};
use longshore_ai::contract::{
    Delivery, Metadata, Prompt, REPLY_SCHEMA, REQUEST_SCHEMA, Reply, ReplyTo, Request,
};
use longshore_ai::{Answer, AskError, Code, FinishReason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::contract_request::smallest;

pub(crate) fn validator(schema: &str) -> Validator {
    let schema = serde_json::from_str(schema).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::options().build(&schema).unwrap()
}

/// A field, and values for it: valid, invalid, and just outside of the range.
fn candidates() -> Vec<(&'static str, Vec<Value>)> {
    let long = |n: usize| Value::from("x".repeat(n));
    let names =
        || vec![json!("a"), json!("A-b_c.d:e"), json!("a b"), json!("a/b"), json!("ü"), long(128), long(129)];
    let lines = || {
        vec![
            json!("a b"),
            json!(""),
            json!("ü\u{2028}"),
            json!("a\u{1}"),
            json!("\u{85}"),
            long(200),
            long(201),
            json!("😀".repeat(200)),
        ]
    };
    let numbers = || {
        vec![
            json!(0),
            json!(1),
            json!(1.0),
            json!(1.5),
            json!(2),
            json!(2.5),
            json!(-1),
            json!(9),
            json!(10),
            json!(3_600_000),
            json!(3_600_001),
            json!(4_294_967_295_u64),
            json!(4_294_967_296_u64),
            json!(1e300),
        ]
    };
    let odd = || vec![Value::Null, json!(true), json!([]), json!({}), json!(7), json!("text")];
    let queue = |library: Value, name: Value| json!({ "library": library, "name": name, "x": 1 });
    let mut queues: Vec<Value> = names().into_iter().map(|n| queue(json!("L#@$"), n)).collect();
    queues.extend(names().into_iter().map(|n| queue(n, json!("R"))));
    queues.push(json!({ "library": "L" }));
    queues.push(queue(json!("L"), Value::Null));
    let versions =
        ["1.0", "1.1", "1.999999999", "1.9999999999", "1.01", "01.0", "2.0", "1", "1.", "", "1.0.0", "1.+1"];
    let fields = vec![
        ("version", versions.into_iter().map(Value::from).collect()),
        ("request_id", lines()),
        ("customer", names()),
        ("profile_ref", names()),
        ("reply_queue", queues),
        ("prompt", lines()),
        ("prompt_ref", lines()),
        ("model_override", lines()),
        ("temperature", numbers()),
        ("max_tokens", numbers()),
        ("system_prompt", lines()),
        ("timeout_ms", numbers()),
        ("metadata", vec![json!({ "a": [1] })]),
        ("priority", numbers()),
        ("response_schema", vec![json!({ "type": "object" })]),
        ("stream", vec![json!(false)]),
        ("unknown", vec![]),
    ];
    fields.into_iter().map(|(name, values): (_, Vec<Value>)| (name, [values, odd()].concat())).collect()
}

fn assert_agree(schema: &Validator, request: &Value) {
    let parsed = Request::parse(request.to_string().as_bytes());
    assert_eq!(parsed.is_ok(), schema.is_valid(request), "{request}: {parsed:?}");
}

#[test]
fn each_field_is_accepted_by_both_or_by_none() {
    let schema = validator(REQUEST_SCHEMA);
    for (name, values) in candidates() {
        for value in values {
            let mut request = smallest();
            request[name] = value;
            assert_agree(&schema, &request);
            if name == "prompt_ref" {
                request.as_object_mut().unwrap().remove("prompt");
                assert_agree(&schema, &request);
            }
        }
        let mut request = smallest();
        request.as_object_mut().unwrap().remove(name);
        assert_agree(&schema, &request);
    }
}

fn some_requests() -> impl Strategy<Value = Value> {
    let all = candidates();
    let change = (0..all.len(), any::<prop::sample::Index>()).prop_map(move |(at, which)| {
        let (name, values) = &all[at];
        (*name, which.get(values).clone())
    });
    prop::collection::vec(change, 0..5).prop_map(|changes| {
        let mut request = smallest();
        for (name, value) in changes {
            request[name] = value;
        }
        request
    })
}

prop_compose! {
    fn requests()(
        id in "\\PC{1,200}", customer in "[a-zA-Z0-9_.:-]{1,20}", prompt in "(?s).{1,40}",
        by_reference: bool, model in prop::option::of("[a-z0-9./-]{1,20}"),
        temperature in prop::option::of(0.0..=2.0), max_tokens in prop::option::of(1_u32..),
        system in prop::option::of("(?s).{0,20}"), timeout in 1..=3_600_000_u64,
        priority in 1..=9_u8, pieces: bool, number: i64, schema: bool,
        batch in prop::option::of("[a-zA-Z0-9_.:-]{1,20}"),
    ) -> Request {
        let prompt = if by_reference { Prompt::Reference(id.clone()) } else { Prompt::Text(prompt) };
        let reply_to = ReplyTo { library: format!("{customer}_5DTA"), name: "RPLY_1".into() };
        let tenant = TenantId::new(customer).unwrap();
        Request {
            model,
            temperature,
            max_tokens,
            system,
            timeout: Duration::from_millis(timeout),
            metadata: Metadata::new(&json!({ "number": number })).unwrap(),
            priority: Priority::new(priority).unwrap(),
            schema: schema.then(|| json!({ "type": "object" })),
            delivery: if pieces { Delivery::Pieces } else { Delivery::Whole },
            reply_queue: Some(reply_to),
            batch: batch.map(|batch| BatchId::new(batch).unwrap()),
            ..Request::new(id, tenant, ProfileName::new("p").unwrap(), prompt)
        }
    }
}

prop_compose! {
    fn replies()(
        request in requests(), text in "(?s).{0,40}", tokens: u32, reason in 0..4_usize,
        code in 0..9_usize, kind in 0..3, seq in prop::option::of(0..100_u64), status: Option<u16>,
        wait: Option<u32>, actual: bool,
    ) -> Reply {
        use FinishReason::{ContentFilter, Length, Other, Stop};
        let finish_reason = [Stop, Length, ContentFilter, Other][reason];
        let reply = match kind {
            0 => {
                let tokens = u64::from(tokens);
                let answer = Answer {
                    text, model: "m".into(), tokens_in: tokens, tokens_out: tokens, finish_reason,
                    estimated: actual, simulated: actual, ..Answer::default()
                };
                let reply = Reply::success(request.header(), &answer, 1);
                if actual { reply.with_cost(i64::from(code as u32)) } else { reply }
            }
            1 => {
                let error = AskError {
                    provider_status: status,
                    retry_after: wait.map(|ms| Duration::from_millis(ms.into())),
                    ..AskError::new(CODES[code], text)
                };
                Reply::error(request.header(), &error, tokens)
            }
            _ => return Reply::partial(request.header(), seq.unwrap_or(0) + 1, text),
        };
        let reply = reply.with_budget_used(wait.map(|used| f64::from(used) / f64::from(u32::MAX)));
        match seq {
            Some(partials) => reply.numbered_after(partials),
            None => reply,
        }
    }
}

const CODES: [Code; 10] = [
    Code::InvalidRequest,
    Code::DuplicateRequest,
    Code::ProfileNotFound,
    Code::ProfileDisabled,
    Code::RateLimited,
    Code::OverBudget,
    Code::ProviderAuth,
    Code::ProviderError,
    Code::Timeout,
    Code::Internal,
];

proptest! {
    #[test]
    fn any_request_is_accepted_by_both_or_by_none(
        requests in prop::collection::vec(some_requests(), 20),
    ) {
        let schema = validator(REQUEST_SCHEMA);
        requests.iter().for_each(|request| assert_agree(&schema, request));
    }

    #[test]
    fn what_we_send_keeps_to_the_schemas_and_comes_back_as_it_was(
        requests in prop::collection::vec(requests(), 10),
        replies in prop::collection::vec(replies(), 10),
    ) {
        let schema = validator(REQUEST_SCHEMA);
        for request in requests {
            let bytes = request.to_json().unwrap();
            prop_assert!(schema.is_valid(&serde_json::from_slice(&bytes).unwrap()));
            prop_assert_eq!(Request::parse(&bytes).unwrap(), request);
        }
        let schema = validator(REPLY_SCHEMA);
        for reply in replies {
            let bytes = reply.to_json().unwrap();
            let json: Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert!(schema.is_valid(&json), "{}", json);
            prop_assert_eq!(Reply::parse(&bytes).unwrap(), reply);
        }
    }
}

#[test]
fn a_reply_without_a_field_it_must_have_is_refused_by_both() {
    let schema = validator(REPLY_SCHEMA);
    let request = Request::parse(smallest().to_string().as_bytes()).unwrap();
    let error = AskError::new(Code::Timeout, "no answer in time");
    let all = [
        Reply::success(request.header(), &Answer::default(), 1),
        Reply::error(request.header(), &error, 1),
        Reply::partial(request.header(), 1, "a"),
    ];
    for reply in all {
        let whole: Value = serde_json::from_slice(&reply.to_json().unwrap()).unwrap();
        for field in whole.as_object().unwrap().keys() {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(field);
            let parses = Reply::parse(less.to_string().as_bytes()).is_ok();
            // What we write always has an id and metadata; what we parse may lack them.
            let lenient = ["request_id", "metadata"].contains(&field.as_str());
            assert!(parses == schema.is_valid(&less) || (lenient && parses), "{less}");
        }
    }
}
