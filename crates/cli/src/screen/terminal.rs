//! The terminal while a live view has it: a screen of its own, and keys without Enter. Everything is
//! as it was once this is dropped, also after a panic. Drawing is ratatui's.

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

/// How soon it is noticed that nobody waits for keys any more.
const NOTICE: Duration = Duration::from_millis(100);

pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::UnboundedReceiver<Key>,
}

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// To leave.
    Quit,
    /// To the next list, …
    Next,
    /// … or the one before.
    Previous,
    Up,
    Down,
    Pause,
    Help,
    /// Nothing; or the terminal has another size.
    Other,
}

impl Screen {
    /// Takes the terminal, if stdout is one and people read it.
    pub(crate) fn open(output: Output) -> Option<Self> {
        if output.is_json() || !io::stdout().is_terminal() {
            return None;
        }
        let terminal = ratatui::try_init().ok()?;
        let (send, keys) = mpsc::unbounded_channel();
        std::thread::spawn(move || listen(&send));
        Some(Self { terminal, keys })
    }

    /// Draws what is other than before.
    pub(crate) fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(view).map(drop)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = self.terminal.size().unwrap_or((80, 24).into());
        (size.width.into(), size.height.into())
    }

    /// Draws a view of lines that only `q` leaves.
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

    /// Returns once somebody wants to leave.
    pub(crate) async fn quit(&mut self) {
        while self.key().await != Key::Quit {}
    }

    /// The next key; never, if there is no keyboard.
    pub(crate) async fn key(&mut self) -> Key {
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

/// Reads keys until nobody wants them.
fn listen(keys: &mpsc::UnboundedSender<Key>) {
    while !keys.is_closed() {
        let key = match event::poll(NOTICE) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => meaning(key),
                Ok(Event::Resize(..)) => Key::Other,
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

/// The terminal sends no signals by itself while we have it: Ctrl-C is a key.
fn meaning(key: KeyEvent) -> Key {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Char('q') => Key::Quit,
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => Key::Next,
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => Key::Previous,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Char('p') => Key::Pause,
        KeyCode::Char('?') => Key::Help,
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_foot_says() {
        let plain = |code| meaning(KeyEvent::new(code, KeyModifiers::NONE));
        for (code, key) in [
            (KeyCode::Char('q'), Key::Quit),
            (KeyCode::Tab, Key::Next),
            (KeyCode::BackTab, Key::Previous),
            (KeyCode::Up, Key::Up),
            (KeyCode::Char('j'), Key::Down),
            (KeyCode::Char('p'), Key::Pause),
            (KeyCode::Char('?'), Key::Help),
            (KeyCode::Char('c'), Key::Other),
            (KeyCode::Esc, Key::Other),
        ] {
            assert_eq!(plain(code), key, "{code:?}");
        }
        let end = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(meaning(end), Key::Quit);
    }
}
