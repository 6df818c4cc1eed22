//! Invalid requests are answered if they name a reply queue.

use longshore_ai::contract::{Reply, Request, parse_partial};
use longshore_ai::{AskError, Code};
use proptest::prelude::*;
use serde_json::json;

use crate::contract_request::{smallest, with};

#[test]
fn what_stands_before_the_mistake_can_be_read() {
    let whole = r#"{"version": "1.3", "request_id": "r-1", "customer": "acme", "metadata": {"a": 1},
        "reply_queue": {"library": "ACME", "name": "R1"}, "prompt": "say "hi" to me"}"#;
    Request::parse(whole.as_bytes()).unwrap_err();
    let partial = parse_partial(whole.as_bytes());
    assert_eq!(partial.request_id.as_deref(), Some("r-1"));
    assert_eq!(partial.version.unwrap().to_string(), "1.3");
    assert_eq!(partial.customer.unwrap().as_str(), "acme");
    assert_eq!(partial.reply_queue.unwrap().name, "R1");
    assert_eq!(partial.metadata.as_str(), r#"{"a": 1}"#);
}

#[test]
fn a_bad_field_does_not_hide_the_others() {
    let bad = with(json!({ "request_id": 17, "temperature": 9, "metadata": [], "customer": "" }));
    let partial = parse_partial(bad.to_string().as_bytes());
    assert_eq!((partial.request_id, partial.customer), (None, None));
    assert_eq!(partial.reply_queue.unwrap().library, "ACME_5DTA");
    assert_eq!(partial.metadata.as_str(), "{}");
}

#[test]
fn another_encoding_spoils_only_its_own_field() {
    let text = smallest().to_string().replacen("1 + 1?", "gr\u{1}n", 1).replace("\\u0001", "\u{1}");
    let bytes: Vec<u8> = text.bytes().map(|b| if b == 1 { 0xfc } else { b }).collect();
    Request::parse(&bytes).unwrap_err();
    let partial = parse_partial(&bytes);
    assert_eq!(partial.reply_queue.unwrap().name, "RPLY_000001");
    assert_eq!(partial.request_id.as_deref(), Some("r-1"));
}

#[test]
fn an_address_inside_a_prompt_is_none() {
    let text = r#"{"prompt": "x "reply_queue": {"library": "EVIL", "name": "R"}"#;
    assert_eq!(parse_partial(text.as_bytes()).reply_queue, None);
    for nothing in ["", "null", "[]", "\"reply_queue\"", "{"] {
        assert_eq!(parse_partial(nothing.as_bytes()), Default::default(), "{nothing}");
    }
}

#[test]
fn whoever_speaks_a_version_that_we_do_not_is_answered_in_ours() {
    let bytes = with(json!({ "version": "2.5" })).to_string();
    let error = AskError::from(Request::parse(bytes.as_bytes()).unwrap_err());
    let partial = parse_partial(bytes.as_bytes());
    assert_eq!(partial.version.unwrap().to_string(), "2.5");
    let reply = Reply::error(partial.header(), &error, 0);
    let json: serde_json::Value = serde_json::from_slice(&reply.to_json().unwrap()).unwrap();
    assert_eq!(json["version"], "1.0");
    assert_eq!(json["request_id"], "r-1");
    assert_eq!(json["error_code"], Code::InvalidRequest.as_str());
}

proptest! {
    #[test]
    fn a_request_cut_anywhere_never_gives_a_wrong_address(at: prop::sample::Index) {
        let text = smallest().to_string();
        let cut = &text.as_bytes()[..at.index(text.len())];
        prop_assert!(Request::parse(cut).is_err());
        let (found, whole) = (parse_partial(cut), parse_partial(text.as_bytes()));
        prop_assert!(found.reply_queue.is_none() || found.reply_queue == whole.reply_queue);
        prop_assert!(found.request_id.is_none() || found.request_id == whole.request_id);
    }

    #[test]
    fn any_bytes_are_a_request_or_a_mistake_in_few_words(bytes: Vec<u8>) {
        let _ = (parse_partial(&bytes), Reply::parse(&bytes));
        if let Err(error) = Request::parse(&bytes) {
            prop_assert!(!error.0.is_empty() && error.0.len() < 200, "{}", error);
        }
    }

    #[test]
    fn whatever_parses_is_peeked_the_same(priority in 1..9, id in "[ -~]{1,20}") {
        let bytes = with(json!({ "priority": priority, "request_id": id })).to_string();
        let request = Request::parse(bytes.as_bytes()).unwrap();
        let partial = parse_partial(bytes.as_bytes());
        prop_assert_eq!(partial.header(), request.header());
        prop_assert_eq!(partial.reply_queue, request.reply_queue);
    }
}
