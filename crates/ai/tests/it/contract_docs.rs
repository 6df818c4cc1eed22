//! The documentation's examples are valid requests and replies.

use longshore_ai::contract::{REPLY_SCHEMA, REQUEST_SCHEMA, Reply, Request};
use longshore_ai::{Code, FinishReason};
use serde_json::Value;

use crate::contract_schema::validator;

fn page() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../../docs/ai-contract.md")).unwrap()
}

/// The page's JSON examples.
fn examples(page: &str) -> Vec<Value> {
    let blocks = page.split("```json\n").skip(1);
    blocks.map(|block| serde_json::from_str(block.split("```").next().unwrap()).unwrap()).collect()
}

#[test]
fn the_pages_examples_keep_to_the_contract() {
    let (requests, replies) = (validator(REQUEST_SCHEMA), validator(REPLY_SCHEMA));
    let (mut asked, mut answered) = (0, 0);
    for example in examples(&page()) {
        let bytes = example.to_string();
        if example.get("status").is_some() {
            assert!(replies.is_valid(&example), "{example}");
            Reply::parse(bytes.as_bytes()).unwrap();
            answered += 1;
        } else {
            assert!(requests.is_valid(&example), "{example}");
            Request::parse(bytes.as_bytes()).unwrap();
            asked += 1;
        }
    }
    assert!(asked >= 2 && answered >= 4, "{asked} requests, {answered} replies");
}

#[test]
fn the_page_names_every_field_and_code() {
    let page = page();
    for schema in [REQUEST_SCHEMA, REPLY_SCHEMA] {
        let schema: Value = serde_json::from_str(schema).unwrap();
        for field in schema["properties"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{field}`")), "{field}");
        }
    }
    let schema: Value = serde_json::from_str(REPLY_SCHEMA).unwrap();
    for code in schema["properties"]["error_code"]["enum"].as_array().unwrap() {
        assert!(page.contains(&format!("`{}`", code.as_str().unwrap())), "{code}");
        let read: Code = serde_json::from_value(code.clone()).unwrap();
        assert_eq!(read.as_str(), code, "the type knows it");
    }
    for reason in schema["properties"]["finish_reason"]["enum"].as_array().unwrap() {
        assert!(page.contains(&format!("`{}`", reason.as_str().unwrap())), "{reason}");
        let read: FinishReason = serde_json::from_value(reason.clone()).unwrap();
        assert_eq!(&serde_json::to_value(read).unwrap(), reason);
    }
}
