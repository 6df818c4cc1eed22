//! Reads the output of a process within bounds, so that the process never blocks on it.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How long output is read after its process has ended, while processes that it left behind still
/// hold the pipe.
pub const OUTPUT_LINGER: Duration = Duration::from_millis(200);
/// Bytes to read at once.
const READ_CHUNK: usize = 64 * 1024;

/// The beginning and the end of a stream. The middle of a long one is discarded.
#[derive(Debug)]
pub struct BoundedOutput {
    max_head: usize,
    max_tail: usize,
    head: Vec<u8>,
    /// At most twice `max_tail`, so that it is rarely trimmed.
    tail: Vec<u8>,
    /// Length of the whole stream.
    bytes: u64,
}

impl BoundedOutput {
    /// Keeps this many bytes from the beginning and from the end.
    pub fn new(max_head: usize, max_tail: usize) -> Self {
        Self { max_head, max_tail, head: Vec::new(), tail: Vec::new(), bytes: 0 }
    }

    /// Reads a stream to its end. A stream that breaks has ended: the process's exit tells the rest.
    pub async fn read_from(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut chunk = vec![0; READ_CHUNK];
        while let Ok(count @ 1..) = from.read(&mut chunk).await {
            self.push(&chunk[..count]);
        }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let room = self.max_head - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(last(rest, self.max_tail));
        if self.tail.len() > 2 * self.max_tail {
            self.tail.drain(..self.tail.len() - self.max_tail);
        }
    }

    /// Number of bytes that were left out.
    pub fn left_out(&self) -> u64 {
        self.bytes - (self.head.len() + last(&self.tail, self.max_tail).len()) as u64
    }

    /// The kept bytes as text, in which bytes that are not UTF-8 are replaced. If some were left
    /// out, `gap` gets their number, and its result stands in their place.
    pub fn text(&self, gap: impl FnOnce(u64) -> String) -> String {
        let tail = last(&self.tail, self.max_tail);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match self.left_out() {
            // As a whole: a character may be split between the two.
            0 => text(&[&self.head, tail].concat()),
            left_out => text(&self.head) + &gap(left_out) + &text(tail),
        }
    }
}

fn last(bytes: &[u8], count: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(count)..]
}

/// Reads output while its owner waits for the process or something else.
pub struct OutputReader<F: Future> {
    reading: Pin<Box<F>>,
    result: Option<F::Output>,
}

impl<F: Future> OutputReader<F> {
    /// A reader that polls `reading`, which should return at the end of the output.
    pub fn new(reading: F) -> Self {
        Self { reading: Box::pin(reading), result: None }
    }

    /// Awaits `until`, and reads meanwhile.
    pub async fn read_during<T>(&mut self, until: impl Future<Output = T>) -> T {
        let mut until = pin!(until);
        if self.result.is_none() {
            tokio::select! {
                biased;
                value = &mut until => return value,
                result = &mut self.reading => self.result = Some(result),
            }
        }
        until.await
    }

    /// Reads the rest after the process has ended, for at most [`OUTPUT_LINGER`]. Returns what
    /// `reading` returned; `None` if the output did not end in time.
    pub async fn finish(self) -> Option<F::Output> {
        match self.result {
            Some(result) => Some(result),
            None => tokio::time::timeout(OUTPUT_LINGER, self.reading).await.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(left_out: u64) -> String {
        format!("[{left_out}]")
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        let mut output = BoundedOutput::new(999, 1001);
        let text = "ü".repeat(1000);
        text.as_bytes().chunks(7).for_each(|part| output.push(part));
        assert_eq!((output.left_out(), output.text(gap)), (0, text));
    }

    #[test]
    fn of_a_long_output_both_ends_are_kept() {
        let mut output = BoundedOutput::new(10, 10);
        output.push(b"first");
        output.push(&[b'x'; 60]);
        output.push(b"last");
        assert_eq!(output.text(gap), "firstxxxxx[49]xxxxxxlast");
    }

    #[test]
    fn of_much_the_end_is_kept() {
        let mut output = BoundedOutput::new(0, 100);
        (0..10_000).for_each(|n| output.push(format!("line {n}\n").as_bytes()));
        let text = output.text(|_| String::new());
        assert!(text.ends_with("line 9999\n") && text.len() == 100, "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn output_that_does_not_end_is_not_waited_for() {
        let mut reader = OutputReader::new(std::future::pending::<()>());
        assert_eq!(reader.read_during(std::future::ready(1)).await, 1);
        assert_eq!(reader.finish().await, None);
        let mut reader = OutputReader::new(std::future::ready(2));
        reader.read_during(tokio::time::sleep(OUTPUT_LINGER)).await;
        assert_eq!(reader.finish().await, Some(2));
    }
}
