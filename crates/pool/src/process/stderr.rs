//! A worker's standard error: always read, so that the worker never blocks on it; logged; and its
//! end kept for error messages.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// Bytes that are kept.
const TAIL_SIZE: usize = 8 * 1024;

/// The end of a worker's standard error.
#[derive(Default)]
pub(super) struct StderrTail(Mutex<Vec<u8>>);

impl StderrTail {
    fn push(&self, new: &[u8]) {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.extend_from_slice(new);
        if bytes.len() > 2 * TAIL_SIZE {
            let over = bytes.len() - TAIL_SIZE;
            bytes.drain(..over);
        }
    }

    /// The end as text; bytes that are not UTF-8 are replaced.
    pub(super) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = &bytes[bytes.len().saturating_sub(TAIL_SIZE)..];
        String::from_utf8_lossy(end).trim_end().to_owned()
    }
}

/// Reads standard error until it ends.
pub(super) async fn read_stderr(
    pipe: AsyncFd<OwnedFd>,
    tail: Arc<StderrTail>,
    pool: String,
    worker: u64,
) {
    let (mut buffer, mut line) = (vec![0; 4096], Vec::new());
    loop {
        let Ok(mut ready) = pipe.readable().await else { return };
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) => return,
            Ok(read) => {
                tail.push(&buffer[..read]);
                log(&buffer[..read], &mut line, &pool, worker);
            }
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
        tokio::task::coop::consume_budget().await;
    }
}

/// Logs complete lines, and lines that exceed the limit.
fn log(bytes: &[u8], line: &mut Vec<u8>, pool: &str, worker: u64) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
        line.extend_from_slice(part);
        if part.ends_with(b"\n") || line.len() > TAIL_SIZE {
            let text = String::from_utf8_lossy(line.trim_ascii_end());
            tracing::debug!(pool, worker, %text, "standard error");
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_much_the_end_is_kept() {
        let tail = StderrTail::default();
        for n in 0..10_000 {
            tail.push(format!("line {n}\n").as_bytes());
        }
        let text = tail.text();
        assert!(
            text.ends_with("line 9999") && text.len() <= TAIL_SIZE && text.len() > TAIL_SIZE - 20
        );
    }
}
