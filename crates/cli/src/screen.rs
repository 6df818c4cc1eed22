//! The terminal while a live view has it: a screen of its own, and keys without Enter. Everything is
//! as it was once this is dropped.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::unix::AsyncFd;

/// Another screen, its cursor hidden; and back.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";

pub(crate) struct Screen {
    keys: Option<Keys>,
}

struct Keys {
    input: AsyncFd<io::Stdin>,
    before: Termios,
    /// Pressed and not yet asked for.
    pressed: VecDeque<Key>,
}

impl Screen {
    /// Takes the terminal, if stdout is one.
    pub(crate) fn open() -> Option<Self> {
        if !io::stdout().is_terminal() {
            return None;
        }
        put(OPEN).ok()?;
        Some(Self { keys: Keys::open() })
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Draws a view that only `q` leaves.
    pub(crate) fn draw(&self, lines: &[String], height: usize) -> io::Result<()> {
        self.draw_over(lines, height, "q quits")
    }

    /// Draws over what was there, line by line, so that nothing flickers; at the end what keys do.
    pub(crate) fn draw_over(&self, lines: &[String], height: usize, foot: &str) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(height.saturating_sub(1)) {
            text.push_str(line);
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[J");
        text.extend(foot.chars().take(self.size().0));
        put(&text)
    }

    /// Returns once somebody wants to leave.
    pub(crate) async fn quit(&mut self) {
        while self.key().await != Key::Quit {}
    }

    /// The next key; never, if there is no keyboard.
    pub(crate) async fn key(&mut self) -> Key {
        let Some(keys) = &mut self.keys else { return std::future::pending().await };
        loop {
            if let Some(key) = keys.pressed.pop_front() {
                return key;
            }
            let Ok(mut ready) = keys.input.readable().await else { break };
            let mut bytes = [0; 64];
            match rustix::io::read(io::stdin(), &mut bytes) {
                Ok(length @ 1..) => keys.pressed.extend(read_keys(&bytes[..length])),
                _ => break,
            }
            ready.clear_ready();
        }
        self.keys = None;
        std::future::pending().await
    }
}

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// To leave.
    Quit,
    /// To the next list.
    Next,
    Up,
    Down,
    Pause,
    /// Nothing.
    Other,
}

/// The keys that a terminal sent. Arrows are sequences of three bytes, and come at once.
fn read_keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        let (key, rest) = match (first, rest) {
            (0x1b, [b'[' | b'O', b'A', rest @ ..]) => (Key::Up, rest),
            (0x1b, [b'[' | b'O', b'B', rest @ ..]) => (Key::Down, rest),
            (0x1b, [b'[' | b'O', _, rest @ ..]) => (Key::Other, rest),
            (b'q', rest) => (Key::Quit, rest),
            (b'\t', rest) => (Key::Next, rest),
            (b'k', rest) => (Key::Up, rest),
            (b'j', rest) => (Key::Down, rest),
            (b'p', rest) => (Key::Pause, rest),
            (_, rest) => (Key::Other, rest),
        };
        keys.push(key);
        bytes = rest;
    }
    keys
}

/// So much of a whole, as wide as this and its brackets. More than the whole is full.
pub(crate) fn bar(part: u64, whole: u64, width: usize) -> String {
    let part = usize::try_from(part.min(whole)).unwrap_or(usize::MAX);
    let whole = usize::try_from(whole.max(1)).unwrap_or(usize::MAX);
    let full = width.saturating_mul(part) / whole;
    format!("[{}{}]", "#".repeat(full), ".".repeat(width - full))
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = put(CLOSE);
    }
}

impl Keys {
    /// Keys as they are pressed, unseen; nothing if stdin is no terminal.
    fn open() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        match listen() {
            Ok(input) => Some(Self { input, before, pressed: VecDeque::new() }),
            Err(_) => {
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
                None
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(self.input.get_ref(), OptionalActions::Now, &self.before);
    }
}

#[expect(deprecated, reason = "its replacement is unsafe; standard input stays open")]
fn listen() -> io::Result<AsyncFd<io::Stdin>> {
    AsyncFd::with_interest(io::stdin(), tokio::io::Interest::READABLE)
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_also_when_several_come_at_once() {
        let keys = read_keys(b"\x1b[A\x1bOB\tp\x1b[Cxjkq");
        let wanted = [
            Key::Up,
            Key::Down,
            Key::Next,
            Key::Pause,
            Key::Other,
            Key::Other,
            Key::Down,
            Key::Up,
            Key::Quit,
        ];
        assert_eq!(keys, wanted);
        assert_eq!(read_keys(b"\x1b"), [Key::Other]);
    }

    #[test]
    fn a_bar_is_never_fuller_than_full() {
        assert_eq!(bar(1, 2, 4), "[##..]");
        assert_eq!(bar(9, 2, 4), "[####]");
        assert_eq!(bar(0, 0, 4), "[....]");
    }
}
