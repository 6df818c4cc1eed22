//! Streamed answers.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::inference::fixture::InferenceFixture;

use super::{ANTHROPIC, GatewayFixture, OPENAI, Reply, TOKEN, post};

fn hello(model: &str, more: &Value) -> Value {
    let messages = [json!({"role": "user", "content": "How are you?"})];
    let mut body = json!({"model": model, "max_tokens": 9, "messages": messages, "stream": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn chunks(reply: &Reply) -> Vec<Value> {
    let events = reply.events();
    assert_eq!(events.last().unwrap().1, "[DONE]");
    let chunks = events[..events.len() - 1].iter().map(|(_, data)| serde_json::from_str(data).unwrap());
    chunks.collect()
}

#[tokio::test]
async fn openai_chunks_come_in_their_order() {
    let fixture = GatewayFixture::new();
    let reply = fixture.post(OPENAI, hello("plain", &json!({}))).await;
    let chunks = chunks(&reply);
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!((&chunk["created"], &chunk["choices"][0]["index"]), (&json!(1_700_000_000), &json!(0)));
        assert!(chunk.get("usage").is_none(), "the request did not ask for it: {chunk}");
    }
    let deltas: Vec<_> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let begin = json!({"role": "assistant", "content": ""});
    let words = ["How ", "are ", "you?"].map(|word| json!({"content": word}));
    assert_eq!(deltas, [&begin, &words[0], &words[1], &words[2], &json!({})]);
    let ends: Vec<_> = chunks.iter().map(|chunk| &chunk["choices"][0]["finish_reason"]).collect();
    assert_eq!(ends.last().unwrap(), &"stop");
    assert!(ends[..4].iter().all(|end| end.is_null()));
    assert_eq!((&chunks[0]["model"], &chunks[4]["model"]), (&json!("fake-1"), &json!("fake-1-really")));
    assert_eq!(*fixture.fake.notes.lock().unwrap(), 1);
}

#[tokio::test]
async fn openai_usage_comes_last_if_it_is_wanted() {
    let more = json!({"stream_options": {"include_usage": true}});
    let reply = GatewayFixture::new().post(OPENAI, hello("plain", &more)).await;
    let last = chunks(&reply).pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 24);
}

#[tokio::test]
async fn openai_calls_of_tools_are_told_whether_they_came_in_pieces_or_not() {
    let tools = json!({"tools": [{"type": "function", "function": {"name": "weather"}}]});
    for profile in ["tools", "lazy"] {
        let reply = GatewayFixture::new().post(OPENAI, hello(profile, &tools)).await;
        let chunks = chunks(&reply);
        let calls: Vec<_> =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls")).collect();
        let function = json!({"name": "weather", "arguments": "{\"city\":\"Oslo\"}"});
        let call = json!([{"index": 0, "id": "call_1", "type": "function", "function": function}]);
        assert_eq!(calls, [&call], "{profile}");
        let text: String =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, "Let me look.", "{profile}");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
}

#[tokio::test]
async fn anthropic_events_come_in_their_order() {
    let tools = json!({"tools": [{"name": "weather", "input_schema": {"type": "object"}}]});
    for profile in ["tools", "lazy"] {
        let reply = GatewayFixture::new().post(ANTHROPIC, hello(profile, &tools)).await;
        let events: Vec<(&str, Value)> = reply
            .events()
            .into_iter()
            .map(|(name, data)| (name.unwrap(), serde_json::from_str(data).unwrap()))
            .collect();
        assert!(events.iter().all(|(name, data)| data["type"] == *name));
        let mut names: Vec<_> = events.iter().map(|(name, _)| *name).collect();
        names.dedup();
        let block = ["content_block_start", "content_block_delta", "content_block_stop"];
        let all = [&["message_start"][..], &block, &block, &["message_delta", "message_stop"]];
        assert_eq!(names, all.concat(), "{profile}");
        let message = &events[0].1["message"];
        assert_eq!((&message["content"], &message["model"]), (&json!([]), &json!("fake-1")));
        let start = events.iter().rfind(|(name, _)| *name == "content_block_start").unwrap();
        let call = json!({"type": "tool_use", "id": "call_1", "name": "weather", "input": {}});
        assert_eq!((&start.1["content_block"], &start.1["index"]), (&call, &json!(1)));
        let end = &events[events.len() - 2].1;
        assert_eq!(end["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
        assert_eq!(end["usage"]["output_tokens"], 4);
    }
}

#[tokio::test]
async fn what_goes_wrong_in_the_middle_is_told_in_the_stream() {
    let fixture = GatewayFixture::new();
    let reply = fixture.post(OPENAI, hello("broken", &json!({}))).await;
    assert_eq!(reply.status, StatusCode::OK);
    let (_, last) = *reply.events().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["error"]["code"], "provider_error");
    assert!(!reply.body.contains("[DONE]"));

    let reply = fixture.post(ANTHROPIC, hello("broken", &json!({}))).await;
    let (name, last) = *reply.events().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((name, &last["error"]["type"]), (Some("error"), &json!("api_error")));
    assert!(!reply.body.contains("message_stop"));
}

#[tokio::test]
async fn what_goes_wrong_before_the_first_piece_has_a_status() {
    let fixture = GatewayFixture::new();
    for path in [OPENAI, ANTHROPIC] {
        let reply = fixture.post(path, hello("error/RATE_LIMITED-soon", &json!({}))).await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(reply.header("retry-after"), Some("2"));
    }
}

#[tokio::test]
async fn a_listener_who_leaves_ends_the_question() {
    let fixture = GatewayFixture::new();
    let response = fixture.send(post(OPENAI, &hello("stuck", &json!({})))).await;
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"data: "));
    drop(body);
    // Otherwise the test would hang.
    fixture.fake.abandoned.notified().await;
}

/// Over a real connection, since the server has to notice.
#[tokio::test]
async fn a_client_that_hangs_up_ends_the_question_streamed_or_not() {
    let fixture = GatewayFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(axum::serve(listener, fixture.router.clone()).into_future());
    for stream in [true, false] {
        let body = hello("stuck", &json!({"stream": stream})).to_string();
        let length = body.len();
        let request = format!(
            "POST {OPENAI} HTTP/1.1\r\nhost: a\r\nx-api-key: {TOKEN}\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        fixture.fake.started.notified().await;
        drop(client);
        fixture.fake.abandoned.notified().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_does_not_end_by_itself_is_ended_after_its_time() {
    let fixture = GatewayFixture::new();
    let mut request = post(ANTHROPIC, &hello("stuck", &json!({})));
    request.headers_mut().insert("x-longshore-timeout-ms", "1500".parse().unwrap());
    let reply = fixture.reply(request).await;
    let asked = fixture.asked().question;
    assert!(asked.until.elapsed() < Duration::from_secs(5), "{:?}", asked.until.elapsed());
    assert!(reply.body.contains("timeout_error"), "{}", reply.body);
}

/// The first profile is down: from its first event, the stream names the model that answers.
#[tokio::test]
async fn after_a_fallback_a_stream_names_the_model_that_answers() {
    let setup = InferenceFixture::new();
    // An error that is not retried, so that the test does not wait.
    let down = "[[answer]]\nerror = 'PROVIDER_AUTH'";
    setup.scripted("default", "first", down, json!({ "fallback": ["second"] })).await;
    setup.scripted("default", "second", "[[answer]]\nreply = 'well'", json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let reply = fixture.post(OPENAI, hello("first", &json!({}))).await;
    let models: Vec<_> = chunks(&reply).iter().map(|chunk| chunk["model"].clone()).collect();
    assert_eq!(models, vec![json!("second"); 3]);
    let reply = fixture.post(ANTHROPIC, hello("first", &json!({}))).await;
    let (name, data) = reply.events()[0];
    let start: Value = serde_json::from_str(data).unwrap();
    assert_eq!((name, &start["message"]["model"]), (Some("message_start"), &json!("second")));
}
