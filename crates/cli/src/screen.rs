//! The terminal while a live view has it: a screen of its own, and keys without Enter. Everything is
//! as it was once this is dropped.

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

    /// Draws over what was there, line by line, so that nothing flickers.
    pub(crate) fn draw(&self, lines: &[String], height: usize) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(height.saturating_sub(1)) {
            text.push_str(line);
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[Jq quits");
        put(&text)
    }

    /// Returns once somebody wants to leave.
    pub(crate) async fn quit(&mut self) {
        let Some(keys) = &self.keys else { return std::future::pending().await };
        while let Ok(mut ready) = keys.input.readable().await {
            let mut key = [0];
            match rustix::io::read(io::stdin(), &mut key) {
                Ok(1..) if key == *b"q" => return,
                Ok(1..) => {}
                _ => return std::future::pending().await,
            }
            ready.clear_ready();
        }
        std::future::pending::<()>().await;
    }
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
            Ok(input) => Some(Self { input, before }),
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
