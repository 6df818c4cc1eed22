//! Reads a secret: from a pipe, or typed without echo. Never from arguments, which every process of
//! the machine can read.
//!
//! No error of this module repeats what was read.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use longshore_ai::SecretString;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::{WithHint, usage};
use crate::output::Output;

/// Longer than any key.
const MAX_SECRET: usize = 64 * 1024;

/// How soon the reading thread notices that the command has ended.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reads a secret from stdin; at a terminal it prompts and does not echo.
pub async fn read(what: &str, output: Output) -> anyhow::Result<SecretString> {
    let typed = io::stdin().is_terminal();
    if typed {
        output.note(format!("{what} (hidden; end with Enter):"));
    }
    let stop = StopOnDrop::default();
    let stopped = Arc::clone(&stop.0);
    let read = move || if typed { read_hidden(&stopped) } else { read_piped(&stopped) };
    let bytes = tokio::task::spawn_blocking(read).await?.context("cannot read the secret")?;
    drop(stop);
    validate(bytes)
}

/// Stops the reading thread when the command is cancelled: it would wait for a line for ever.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Reads one line with the terminal's echo off.
fn read_hidden(stop: &AtomicBool) -> io::Result<Vec<u8>> {
    let _echo = EchoOff::off()?;
    read_bytes(stop, |so_far| so_far.ends_with(b"\n"))
}

fn read_piped(stop: &AtomicBool) -> io::Result<Vec<u8>> {
    read_bytes(stop, |_| false)
}

/// Reads to the end of the input, or until `enough`.
fn read_bytes(stop: &AtomicBool, enough: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    let stdin = io::stdin();
    // Allocated at once: a growing buffer would leave copies of the secret behind.
    let mut bytes = Vec::with_capacity(MAX_SECRET + 1);
    let mut room = [0; 4096];
    while bytes.len() <= MAX_SECRET && !enough(&bytes) {
        if stop.load(Ordering::Acquire) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut wait = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut wait, Some(&POLL_INTERVAL)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(stdin.as_fd(), &mut room)? {
            0 => break,
            n => bytes.extend_from_slice(&room[..n.min(MAX_SECRET + 1 - bytes.len())]),
        }
    }
    room.fill(0);
    Ok(bytes)
}

/// Turns the terminal's echo off until dropped.
struct EchoOff(Termios);

impl EchoOff {
    fn off() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO;
        // The newline is echoed, so that the next output begins on its own line.
        silent.local_modes |= LocalModes::ECHONL;
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Checks that it can be sent in a header: one line of visible ASCII. The newline that editors and
/// `echo` append is not part of it.
fn validate(bytes: Vec<u8>) -> anyhow::Result<SecretString> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let problem = match line {
        [] => "is empty",
        line if line.len() > MAX_SECRET => "is longer than any key",
        line if line.contains(&b'\n') || line.contains(&b'\r') => "has more than one line",
        line if !line.is_ascii() => "is not ASCII",
        line if line.iter().any(u8::is_ascii_control) => "holds control characters",
        line if line.contains(&b' ') => "holds spaces",
        line => return Ok(std::str::from_utf8(line)?.into()),
    };
    Err(usage(format!("the secret {problem}")))
        .hint("pass it on stdin, as `longshore key add NAME < FILE`, or type it at the prompt")
}

#[cfg(test)]
mod tests {
    use longshore_ai::ExposeSecret;

    use super::*;

    #[test]
    fn a_secret_is_one_line_of_ascii_and_errors_do_not_repeat_it() {
        for good in ["sk-abc", "sk-abc\n", "sk-abc\r\n"] {
            assert_eq!(validate(good.into()).unwrap().expose_secret(), "sk-abc");
        }
        for bad in ["", "\n", "sk-marked\nsk-more", "sk-markedü", "sk-mar ked", "sk-mark\x07ed"] {
            let error = format!("{:#}", validate(bad.into()).unwrap_err());
            assert!(!error.contains("mark"), "{error}");
        }
        assert!(validate(vec![b'x'; MAX_SECRET + 1]).is_err());
    }
}
