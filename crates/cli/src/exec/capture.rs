//! Captures a command's output within bounds: its head and its tail.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes kept of one stream, half of them from each end.
pub const MAX_OUTPUT: usize = 1024 * 1024;

/// The kept part of one stream.
#[derive(Debug, Default)]
pub struct OutputCapture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: usize,
}

impl OutputCapture {
    /// Reads `from` to its end, or for as long as it is polled. The command never blocks on its
    /// output, because the middle of a long one is discarded.
    pub async fn fill(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 16 * 1024];
        // A stream that breaks has ended; the exit code tells the rest.
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT / 2 - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(MAX_OUTPUT / 2);
        self.tail.drain(..over);
        self.left_out += over;
    }

    /// Whether something was left out.
    pub fn is_truncated(&self) -> bool {
        self.left_out > 0
    }

    /// The output as text; invalid UTF-8 is replaced.
    pub fn into_text(mut self) -> String {
        if self.left_out == 0 {
            self.head.extend(self.tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(self.tail.make_contiguous());
        format!("{head}\n… {} bytes left out …\n{tail}", self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_output_is_kept_whole() {
        let mut capture = OutputCapture::default();
        let text = "ü".repeat(MAX_OUTPUT / 2);
        for part in text.as_bytes().chunks(7) {
            capture.push(part);
        }
        assert!(!capture.is_truncated());
        assert_eq!(capture.into_text(), text);
    }

    #[test]
    fn of_a_long_output_both_ends_are_kept() {
        let mut capture = OutputCapture::default();
        capture.push(b"first");
        capture.push(&vec![b'x'; 3 * MAX_OUTPUT]);
        capture.push(b"last");
        assert!(capture.is_truncated());
        let left_out = 3 * MAX_OUTPUT + 9 - MAX_OUTPUT;
        let text = capture.into_text();
        assert!(text.starts_with("first") && text.ends_with("last"));
        assert!(text.contains(&format!("… {left_out} bytes left out …")));
    }
}
