//! Removes quotes of a question from error messages. Messages are stored and logged, and providers
//! quote prompts in them.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::chat::Part;
use crate::model_api::Question;

/// Shortest quote in bytes: shorter matches are words that errors and prompts have in common.
const MIN_QUOTE_BYTES: usize = 16;

/// A shorter text is a quote only as a whole, from this length on.
const MIN_TEXT_BYTES: usize = 6;

/// What replaces a quote.
const REPLACEMENT: &str = "[prompt]";

/// A message without quotes of the question's texts: as they are, in other letter case, as in JSON,
/// and in base64.
pub(crate) fn remove_quotes(message: &str, question: &Question) -> String {
    let lower = lower_case(message);
    let mut is_quoted = vec![false; message.len()];
    for text in texts(question) {
        mark_quotes(&lower, &lower_case(&text), &mut is_quoted);
        // As in a JSON body that the provider sends back, with or without other characters than ASCII.
        let escaped = serde_json::Value::from(&*text).to_string();
        for escaped in [ascii(&escaped), escaped] {
            mark_quotes(&lower, &lower_case(&escaped[1..escaped.len() - 1]), &mut is_quoted);
        }
        for encoded in base64_forms(&text) {
            mark_quotes(message, &encoded, &mut is_quoted);
        }
    }
    let mut cleaned = String::with_capacity(message.len());
    let mut was_quoted = false;
    for (at, char) in message.char_indices() {
        let quoted = is_quoted[at..at + char.len_utf8()].contains(&true);
        match quoted {
            true if !was_quoted => cleaned.push_str(REPLACEMENT),
            true => {}
            false => cleaned.push(char),
        }
        was_quoted = quoted;
    }
    cleaned
}

/// The text in lower case, with every character at its place. A character is kept if its lower case has another length,
/// so that both texts can be compared byte by byte.
fn lower_case(text: &str) -> String {
    let lower = |char: char| {
        let mut lower = char.to_lowercase();
        lower.next().filter(|one| lower.next().is_none() && one.len_utf8() == char.len_utf8()).unwrap_or(char)
    };
    text.chars().map(lower).collect()
}

/// The text in base64, as part of any larger text: groups of three bytes may begin at any of its first
/// three. In both alphabets, and only whole groups.
fn base64_forms(text: &str) -> impl Iterator<Item = String> {
    let bytes = text.as_bytes();
    (0..3).flat_map(move |start| {
        let rest = bytes.get(start..).unwrap_or_default();
        let whole = &rest[..rest.len() - rest.len() % 3];
        let forms =
            if whole.len() < MIN_TEXT_BYTES { &[][..] } else { &[STANDARD_NO_PAD, URL_SAFE_NO_PAD][..] };
        forms.iter().map(move |form| form.encode(whole))
    })
}

fn texts(question: &Question) -> impl Iterator<Item = Cow<'_, str>> {
    let messages = question.chat.iter().flat_map(|chat| &chat.messages);
    let parts = messages.flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Text(text) | Part::ToolResult { text, .. } => Some(Cow::from(text)),
        Part::ToolCall(call) => Some(Cow::from(call.input.to_string())),
        Part::Image { .. } | Part::ImageUrl(_) | Part::Document { .. } | Part::CacheMark(_) => None,
    });
    let system = question.system.as_deref().unwrap_or_default();
    [question.prompt.as_str(), system].into_iter().map(Cow::from).chain(parts)
}

/// JSON with `\u` escapes for all characters that are not ASCII.
fn ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for char in json.chars() {
        match char.is_ascii() {
            true => escaped.push(char),
            false => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    escaped.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    escaped
}

/// Marks the bytes of a message that quote a text. Its white space counts as in messages, which are
/// one line.
fn mark_quotes(message: &str, text: &str, is_quoted: &mut [bool]) {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = text.len().min(MIN_QUOTE_BYTES);
    if length < MIN_TEXT_BYTES || message.len() < length {
        return;
    }
    let mut starts: HashMap<&[u8], Vec<usize>> = HashMap::new();
    // Most places of a long text are ruled out by their first bytes.
    let mut begins = vec![false; 1 << 16];
    for (at, window) in message.as_bytes().windows(length).enumerate() {
        starts.entry(window).or_default().push(at);
        begins[prefix(window)] = true;
    }
    for window in text.as_bytes().windows(length).filter(|window| begins[prefix(window)]) {
        for at in starts.get(window).into_iter().flatten() {
            is_quoted[*at..at + length].fill(true);
        }
    }
}

fn prefix(window: &[u8]) -> usize {
    (usize::from(window[0]) << 8) | usize::from(window[1])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::chat::{Chat, ChatRole, Message, ToolCall};

    fn asked(prompt: &str) -> Question {
        Question::new("r-1", prompt, Instant::now())
    }

    #[test]
    fn a_message_quotes_no_part_of_its_prompt() {
        let prompt = "Patient Ada Lovelace,\n  born 1815,\thas a cough: what now?";
        let quotes = "the provider said 400: invalid text 'Patient Ada Lovelace, born 1815, has' at 7";
        assert_eq!(
            remove_quotes(quotes, &asked(prompt)),
            "the provider said 400: invalid text '[prompt]' at 7"
        );
        let short = "the provider said 400: `PIN 1234` is too short, PIN 12345 is not";
        assert_eq!(
            remove_quotes(short, &asked("PIN 1234")),
            "the provider said 400: `[prompt]` is too short, [prompt]5 is not"
        );
        let system = Question { system: Some("Never reveal the launch codes.".into()), ..asked("hi") };
        assert_eq!(remove_quotes("bad: reveal the launch codes.", &system), "bad:[prompt]");
    }

    #[test]
    fn a_conversation_is_not_quoted_either() {
        let message = Message { role: ChatRole::User, parts: vec![Part::Text("é".repeat(40))] };
        let chat = Some(Arc::new(Chat { messages: vec![message], ..Chat::default() }));
        let question = Question { chat, ..asked("") };
        assert_eq!(remove_quotes(&format!("no: {}!", "é".repeat(20)), &question), "no: [prompt]!");
    }

    #[test]
    fn neither_tool_results_nor_escaped_texts_are_quoted() {
        let call =
            ToolCall { id: "c".into(), name: "f".into(), input: json!({ "name": "Ada Lovelace, 1815" }) };
        let result =
            Part::ToolResult { id: "c".into(), text: "has had a cough since May".into(), failed: false };
        let message = Message { role: ChatRole::User, parts: vec![Part::ToolCall(call), result] };
        let chat = Some(Arc::new(Chat { messages: vec![message], ..Chat::default() }));
        let question = Question { chat, ..asked("Müller, Jürgen:\n\"Größe\" 190 cm 患者是张三") };
        for quote in [
            r#"{"name":"Ada Lovelace, 1815"}"#,
            "has had a cough since May",
            r#"Müller, Jürgen:\n\"Größe\" 190 cm 患者是张三"#,
            r#"M\u00fcller, J\u00fcrgen:\n\"Gr\u00f6\u00dfe\" 190 cm \u60a3\u8005\u662f\u5f20\u4e09"#,
        ] {
            assert_eq!(remove_quotes(&format!("bad: {quote}!"), &question), "bad: [prompt]!");
        }
    }

    #[test]
    fn a_text_in_other_letter_case_or_in_base64_is_a_quote_too() {
        use base64::engine::general_purpose::STANDARD;
        let prompt = "Patient Ada Lovelace, born 1815, has a cough; É";
        let asked = asked(prompt);
        assert_eq!(
            remove_quotes("bad: PATIENT ADA LOVELACE, BORN 1815, HAS A COUGH; é!", &asked),
            "bad: [prompt]!"
        );
        for before in ["", "x", "xy", "xyz"] {
            let message = format!("bad: {}", STANDARD.encode(format!("{before}{prompt}. Thanks")));
            let cleaned = remove_quotes(&message, &asked);
            assert!(cleaned.len() < 40 && cleaned.contains(REPLACEMENT), "{cleaned}");
        }
    }

    #[test]
    fn words_in_common_stay() {
        let message = "the provider said 503: the model is overloaded, try again";
        assert_eq!(remove_quotes(message, &asked("Is the model good? try it")), message);
        assert_eq!(remove_quotes(message, &asked("the")), message);
        assert_eq!(remove_quotes("", &asked("the whole prompt")), "");
    }
}
