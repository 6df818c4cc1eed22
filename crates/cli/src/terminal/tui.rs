//! The terminal during a live view: an alternate screen, and keys without Enter. Dropping it
//! restores the terminal, also after a panic. Ratatui draws.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

use crate::output::Output;

/// How soon the reading thread notices that the view has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::UnboundedReceiver<KeyAction>,
}

/// The action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyAction {
    /// Quit.
    Quit,
    /// Select the next list, …
    Next,
    /// … or the previous one.
    Previous,
    Up,
    Down,
    Pause,
    Help,
    /// None; or the terminal was resized.
    Other,
}

impl Screen {
    /// Takes the terminal, if stdout is one and the output is not JSON.
    pub(crate) fn open(output: Output) -> Option<Self> {
        if output.is_json() || !io::stdout().is_terminal() {
            return None;
        }
        let terminal = ratatui::try_init().ok()?;
        let (send, keys) = mpsc::unbounded_channel();
        std::thread::spawn(move || read_keys(&send));
        Some(Self { terminal, keys })
    }

    /// Draws a frame; ratatui writes only the differences.
    pub(crate) fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(view).map(drop)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = self.terminal.size().unwrap_or((80, 24).into());
        (size.width.into(), size.height.into())
    }

    /// Draws lines of text, in a view with `q` as its only key.
    pub(crate) fn draw_lines(&mut self, lines: &[String]) -> io::Result<()> {
        self.draw(|frame| {
            let rows = [Constraint::Min(0), Constraint::Length(1)];
            let [body, foot] = Layout::vertical(rows).areas(frame.area());
            let lines = lines.iter().map(|line| Line::raw(line.as_str()));
            frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), body);
            let faint = Style::new().add_modifier(Modifier::DIM);
            frame.render_widget(Line::styled("q quits", faint), foot);
        })
    }

    /// Returns when the user quits.
    pub(crate) async fn quit(&mut self) {
        while self.key().await != KeyAction::Quit {}
    }

    /// The next key; pending for ever without a keyboard.
    pub(crate) async fn key(&mut self) -> KeyAction {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}

/// Reads keys until the view ends.
fn read_keys(keys: &mpsc::UnboundedSender<KeyAction>) {
    while !keys.is_closed() {
        let key = match event::poll(POLL_INTERVAL) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => action_of(key),
                Ok(Event::Resize(..)) => KeyAction::Other,
                Ok(_) => continue,
                Err(_) => return,
            },
            Err(_) => return,
        };
        if keys.send(key).is_err() {
            return;
        }
    }
}

/// The terminal sends no signals in raw mode: Ctrl-C is a key.
fn action_of(key: KeyEvent) -> KeyAction {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyAction::Quit,
        KeyCode::Char('q') => KeyAction::Quit,
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => KeyAction::Next,
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => KeyAction::Previous,
        KeyCode::Up | KeyCode::Char('k') => KeyAction::Up,
        KeyCode::Down | KeyCode::Char('j') => KeyAction::Down,
        KeyCode::Char('p') => KeyAction::Pause,
        KeyCode::Char('?') => KeyAction::Help,
        _ => KeyAction::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_foot_says() {
        let plain = |code| action_of(KeyEvent::new(code, KeyModifiers::NONE));
        for (code, key) in [
            (KeyCode::Char('q'), KeyAction::Quit),
            (KeyCode::Tab, KeyAction::Next),
            (KeyCode::BackTab, KeyAction::Previous),
            (KeyCode::Up, KeyAction::Up),
            (KeyCode::Char('j'), KeyAction::Down),
            (KeyCode::Char('p'), KeyAction::Pause),
            (KeyCode::Char('?'), KeyAction::Help),
            (KeyCode::Char('c'), KeyAction::Other),
            (KeyCode::Esc, KeyAction::Other),
        ] {
            assert_eq!(plain(code), key, "{code:?}");
        }
        let end = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action_of(end), KeyAction::Quit);
    }
}
