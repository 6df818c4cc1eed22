//! What supervised processes print, line by line, with the name of whoever said it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A line that is longer is cut in pieces.
const LONGEST: usize = 16 * 1024;

/// How lines look.
#[derive(Debug, Clone, Copy)]
pub enum Voice {
    /// `mail.1 | line`, names padded to this width.
    Prefix(usize),
    /// One JSON object a line.
    Json,
}

/// Who speaks.
#[derive(Debug, Clone, Serialize)]
pub struct Speaker {
    /// Its name, as `mail.1`.
    pub worker: String,
    /// Its number as a process.
    pub pid: u32,
}

impl Voice {
    /// Passes on what comes until it ends. Returns the last line that was not empty.
    pub async fn pass_on(
        self,
        who: &Speaker,
        stream: &'static str,
        from: Option<impl AsyncRead + Unpin>,
    ) -> String {
        let (mut last, mut held) = (String::new(), Vec::new());
        let Some(mut from) = from else { return last };
        let mut buffer = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            held.extend_from_slice(&buffer[..read]);
            while let Some(line) = next_line(&mut held) {
                self.say(who, stream, &line, &mut last);
            }
        }
        if !held.is_empty() {
            self.say(who, stream, &String::from_utf8_lossy(&held), &mut last);
        }
        last
    }

    fn say(self, who: &Speaker, stream: &'static str, line: &str, last: &mut String) {
        let mut text = self.line(who, stream, line);
        text.push('\n');
        // Nobody is left to tell if stderr is gone.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        if !line.trim().is_empty() {
            line.clone_into(last);
        }
    }

    fn line(self, who: &Speaker, stream: &'static str, line: &str) -> String {
        match self {
            Self::Prefix(width) => format!("{:<width$} | {line}", who.worker),
            Self::Json => {
                #[derive(Serialize)]
                struct Said<'a> {
                    #[serde(flatten)]
                    who: &'a Speaker,
                    stream: &'static str,
                    line: Value,
                }
                // What is a document already stays one.
                let line = match serde_json::from_str(line) {
                    Ok(object @ Value::Object(_)) => object,
                    _ => Value::from(line),
                };
                serde_json::to_string(&Said { who, stream, line }).unwrap_or_default()
            }
        }
    }
}

/// Takes the next line, or a piece of one that is too long.
fn next_line(held: &mut Vec<u8>) -> Option<String> {
    let end = held.iter().position(|byte| *byte == b'\n');
    let (text, taken) = match end {
        Some(end) => (end, end + 1),
        None if held.len() >= LONGEST => (LONGEST, LONGEST),
        None => return None,
    };
    let line: Vec<u8> = held.drain(..taken).take(text).collect();
    let line = line.strip_suffix(b"\r").unwrap_or(&line);
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Speaker {
        Speaker { worker: "mail.1".into(), pid: 7 }
    }

    #[test]
    fn a_line_says_who_said_it() {
        assert_eq!(Voice::Prefix(8).line(&who(), "stdout", "hello"), "mail.1   | hello");
        let json = |line| -> Value {
            serde_json::from_str(&Voice::Json.line(&who(), "stderr", line)).unwrap()
        };
        let said = json("it is \"so\"");
        assert_eq!((&said["worker"], &said["pid"]), (&"mail.1".into(), &7.into()));
        assert_eq!((&said["stream"], &said["line"]), (&"stderr".into(), &"it is \"so\"".into()));
        assert_eq!(json("{\"level\":\"INFO\"}")["line"]["level"], "INFO");
    }

    #[test]
    fn lines_come_whole_and_endless_ones_in_pieces() {
        let mut held = b"one\r\n\ntw".to_vec();
        assert_eq!(next_line(&mut held).as_deref(), Some("one"));
        assert_eq!(next_line(&mut held).as_deref(), Some(""));
        assert_eq!((next_line(&mut held), held.as_slice()), (None, &b"tw"[..]));
        let mut held = vec![b'x'; LONGEST + 1];
        assert_eq!(next_line(&mut held).map(|line| line.len()), Some(LONGEST));
        assert_eq!(held.len(), 1);
    }
}
