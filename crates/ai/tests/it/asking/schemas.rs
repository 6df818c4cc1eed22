use std::sync::Arc;

use serde_json::json;

use super::rig::{Rig, errand};

fn schema() -> Arc<serde_json::Value> {
    Arc::new(json!({
        "type": "object", "required": ["sum"], "properties": { "sum": { "type": "integer" } },
    }))
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_form_has_one_chance_to_be_mended() {
    let rig = Rig::new();
    // The second question is the whole conversation: scripts see its last words.
    let script =
        "[[answer]]\nwhen = 'n == 0'\nreply = 'seven'\n\n[[answer]]\nreply = '{\"sum\": 7}'";
    rig.scripted("acme", "fast", script, json!({})).await;
    let mut errand = errand("acme", "fast", "3 + 4");
    errand.question.schema = Some(schema());
    let settled = rig.desk.ask(&errand, None).await;
    let answer = settled.result.unwrap();
    assert_eq!((answer.text.as_str(), settled.attempts), ("{\"sum\": 7}", 2));
    assert!(answer.tokens_in > 4, "both were paid: {}", answer.tokens_in);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_mended_is_given_as_it_is() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", "[[answer]]\nreply = 'seven'", json!({})).await;
    let mut errand = errand("acme", "fast", "3 + 4");
    errand.question.schema = Some(schema());
    let settled = rig.desk.ask(&errand, None).await;
    assert_eq!((settled.result.unwrap().text.as_str(), settled.attempts), ("seven", 2));
}
