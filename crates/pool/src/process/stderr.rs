//! A worker's standard error: always read, so that the worker never blocks on it; logged; and its
//! end kept for error messages.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_process::BoundedOutput;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// Bytes that are kept.
const TAIL_SIZE: usize = 8 * 1024;

/// The end of a worker's standard error.
pub(super) struct StderrTail(Mutex<BoundedOutput>);

impl Default for StderrTail {
    fn default() -> Self {
        Self(Mutex::new(BoundedOutput::new(0, TAIL_SIZE)))
    }
}

impl StderrTail {
    fn push(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    /// The end as text; bytes that are not UTF-8 are replaced.
    pub(super) fn text(&self) -> String {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.text(|_| String::new()).trim_end().to_owned()
    }
}

/// Reads standard error until it ends.
pub(super) async fn read_stderr(pipe: AsyncFd<OwnedFd>, tail: Arc<StderrTail>, pool: String, worker: u64) {
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
