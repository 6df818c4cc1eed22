//! Forwards the output of supervised processes, line by line, with the process's name.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A longer line is split.
const MAX_LINE: usize = 16 * 1024;

/// The format of lines.
#[derive(Debug, Clone, Copy)]
pub enum LineFormat {
    /// `mail.1 | line`, names padded to this width.
    Prefix(usize),
    /// One JSON object per line.
    Json,
}

/// The process that printed a line.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessLabel {
    /// Its name, as `mail.1`.
    pub worker: String,
    /// Its PID.
    pub pid: u32,
}

impl LineFormat {
    /// Forwards a stream until it ends. Returns the last line that was not empty.
    pub async fn forward(
        self,
        label: &ProcessLabel,
        stream: &'static str,
        from: Option<impl AsyncRead + Unpin>,
    ) -> String {
        let (mut last, mut buffered) = (String::new(), Vec::new());
        let Some(mut from) = from else { return last };
        let mut buffer = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            buffered.extend_from_slice(&buffer[..read]);
            while let Some(line) = next_line(&mut buffered) {
                self.write_line(label, stream, &line, &mut last);
            }
        }
        if !buffered.is_empty() {
            self.write_line(label, stream, &String::from_utf8_lossy(&buffered), &mut last);
        }
        last
    }

    fn write_line(self, label: &ProcessLabel, stream: &'static str, line: &str, last: &mut String) {
        let mut text = self.line(label, stream, line);
        text.push('\n');
        // If stderr is closed, nothing can be reported.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        if !line.trim().is_empty() {
            line.clone_into(last);
        }
    }

    fn line(self, label: &ProcessLabel, stream: &'static str, line: &str) -> String {
        match self {
            Self::Prefix(width) => format!("{:<width$} | {line}", label.worker),
            Self::Json => {
                #[derive(Serialize)]
                struct OutputLine<'a> {
                    #[serde(flatten)]
                    label: &'a ProcessLabel,
                    stream: &'static str,
                    line: Value,
                }
                // A line that is a JSON object stays one.
                let line = match serde_json::from_str(line) {
                    Ok(object @ Value::Object(_)) => object,
                    _ => Value::from(line),
                };
                serde_json::to_string(&OutputLine { label, stream, line }).unwrap_or_default()
            }
        }
    }
}

/// Takes the next line, or a part of one that is too long.
fn next_line(buffered: &mut Vec<u8>) -> Option<String> {
    let end = buffered.iter().position(|byte| *byte == b'\n');
    let (text, taken) = match end {
        Some(end) => (end, end + 1),
        None if buffered.len() >= MAX_LINE => (MAX_LINE, MAX_LINE),
        None => return None,
    };
    let line: Vec<u8> = buffered.drain(..taken).take(text).collect();
    let line = line.strip_suffix(b"\r").unwrap_or(&line);
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> ProcessLabel {
        ProcessLabel { worker: "mail.1".into(), pid: 7 }
    }

    #[test]
    fn a_line_says_who_said_it() {
        assert_eq!(LineFormat::Prefix(8).line(&label(), "stdout", "hello"), "mail.1   | hello");
        let json = |line| -> Value {
            serde_json::from_str(&LineFormat::Json.line(&label(), "stderr", line)).unwrap()
        };
        let line = json("it is \"so\"");
        assert_eq!((&line["worker"], &line["pid"]), (&"mail.1".into(), &7.into()));
        assert_eq!((&line["stream"], &line["line"]), (&"stderr".into(), &"it is \"so\"".into()));
        assert_eq!(json("{\"level\":\"INFO\"}")["line"]["level"], "INFO");
    }

    #[test]
    fn lines_come_whole_and_endless_ones_in_pieces() {
        let mut buffered = b"one\r\n\ntw".to_vec();
        assert_eq!(next_line(&mut buffered).as_deref(), Some("one"));
        assert_eq!(next_line(&mut buffered).as_deref(), Some(""));
        assert_eq!((next_line(&mut buffered), buffered.as_slice()), (None, &b"tw"[..]));
        let mut buffered = vec![b'x'; MAX_LINE + 1];
        assert_eq!(next_line(&mut buffered).map(|line| line.len()), Some(MAX_LINE));
        assert_eq!(buffered.len(), 1);
    }
}
