//! A worker's standard error: always read, so that the worker never blocks on it; logged; and its
//! end kept for error messages.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// Bytes that are kept.
const KEPT: usize = 8 * 1024;

/// The end of a worker's standard error.
#[derive(Default)]
pub(super) struct Tail(Mutex<Vec<u8>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        if kept.len() > 2 * KEPT {
            let over = kept.len() - KEPT;
            kept.drain(..over);
        }
    }

    /// The end as text; bytes that are not UTF-8 are replaced.
    pub(super) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = &kept[kept.len().saturating_sub(KEPT)..];
        String::from_utf8_lossy(end).trim_end().to_owned()
    }
}

/// Reads standard error until it ends.
pub(super) async fn listen(pipe: AsyncFd<OwnedFd>, tail: Arc<Tail>, pool: String, worker: u64) {
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
        if part.ends_with(b"\n") || line.len() > KEPT {
            let said = String::from_utf8_lossy(line.trim_ascii_end());
            tracing::debug!(pool, worker, %said, "standard error");
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_much_the_end_is_kept() {
        let tail = Tail::default();
        for n in 0..10_000 {
            tail.push(format!("line {n}\n").as_bytes());
        }
        let text = tail.text();
        assert!(text.ends_with("line 9999") && text.len() <= KEPT && text.len() > KEPT - 20);
    }
}
