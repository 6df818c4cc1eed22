//! A command's output, kept within bounds: its head and its tail, never its whole.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of one stream is kept, half of it from each end.
pub const LIMIT: usize = 1024 * 1024;

/// What is kept of one stream.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: usize,
}

impl Capture {
    /// Reads `from` to its end, or for as long as it is polled; the command never waits for us
    /// because the middle of a long output is thrown away.
    pub async fn fill(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 16 * 1024];
        // A stream that breaks has ended; the exit code tells the rest.
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = LIMIT / 2 - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(LIMIT / 2);
        self.tail.drain(..over);
        self.left_out += over;
    }

    /// Whether something was left out.
    pub fn is_truncated(&self) -> bool {
        self.left_out > 0
    }

    /// The output as text; what is not UTF-8 is replaced.
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
        let mut capture = Capture::default();
        let text = "ü".repeat(LIMIT / 2);
        for part in text.as_bytes().chunks(7) {
            capture.push(part);
        }
        assert!(!capture.is_truncated());
        assert_eq!(capture.into_text(), text);
    }

    #[test]
    fn of_a_long_output_both_ends_are_kept() {
        let mut capture = Capture::default();
        capture.push(b"first");
        capture.push(&vec![b'x'; 3 * LIMIT]);
        capture.push(b"last");
        assert!(capture.is_truncated());
        let left_out = 3 * LIMIT + 9 - LIMIT;
        let text = capture.into_text();
        assert!(text.starts_with("first") && text.ends_with("last"));
        assert!(text.contains(&format!("… {left_out} bytes left out …")));
    }
}
