//! A conversation with all features: images, a failed tool call, stop sequences, sampling.

use std::sync::Arc;
use std::time::Duration;

use longshore_ai::{Chat, ChatRole, Message, Part, Question, Tool, ToolCall, ToolChoice};
use serde_json::json;
use tokio::time::Instant;

pub(crate) fn conversation() -> Question {
    let until = Instant::now() + Duration::from_secs(60);
    Question {
        system: Some("be brief".into()),
        chat: Some(Arc::new(chat())),
        ..Question::new("q-1", "", until)
    }
}

fn chat() -> Chat {
    let look = ToolCall { id: "c1".into(), name: "look".into(), input: json!({ "at": 1 }) };
    let user = |parts| Message { role: ChatRole::User, parts };
    let words = |text: &str| Part::Text(text.into());
    Chat {
        messages: vec![
            user(vec![
                words("what is this?"),
                Part::Image { media_type: "image/png".into(), data: "AAAA".into() },
                Part::ImageUrl("https://example.org/a.png".into()),
            ]),
            Message { role: ChatRole::Assistant, parts: vec![words("let me look"), Part::ToolCall(look)] },
            user(vec![
                Part::ToolResult { id: "c1".into(), text: "dark".into(), failed: true },
                words("and now?"),
            ]),
        ],
        tools: vec![Tool {
            name: "look".into(),
            description: Some("looks".into()),
            input: json!({ "type": "object" }),
        }],
        tool_choice: ToolChoice::Named("look".into()),
        stop: vec!["END".into()],
        top_p: Some(0.9),
        ..Chat::default()
    }
}
