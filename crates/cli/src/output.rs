//! The one place that prints: data to stdout, words about it to stderr.
//!
//! Three forms: tables and sentences for people, JSON for programs, and quiet. Colours and
//! progress bars only where a person looks.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

pub use table::{Table, cell, paint, right};

mod table;

/// For whom we print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// For people.
    #[default]
    Human,
    /// For programs: one JSON document, or one a line.
    Json,
    /// Data only, no words.
    Quiet,
}

/// Where everything is printed.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    form: Form,
    colour: bool,
}

impl Output {
    /// An output of this form; colours only if stdout is a terminal and `NO_COLOR` is not set.
    pub fn new(form: Form) -> Self {
        let wanted = std::env::var_os(crate::env::NO_COLOR).is_none_or(|value| value.is_empty());
        Self { form, colour: wanted && form == Form::Human && io::stdout().is_terminal() }
    }

    /// Whether programs read us.
    pub fn is_json(self) -> bool {
        self.form == Form::Json
    }

    /// Whether data may be coloured.
    pub fn is_coloured(self) -> bool {
        self.colour
    }

    /// Whether words are unwanted.
    pub fn is_quiet(self) -> bool {
        self.form == Form::Quiet
    }

    /// Whether a person watches.
    pub fn is_watched(self) -> bool {
        self.form == Form::Human && io::stderr().is_terminal()
    }

    /// One JSON document on one line.
    pub fn json(self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        Ok(put(&text)?)
    }

    /// A line of data.
    pub fn line(self, text: impl AsRef<str>) -> anyhow::Result<()> {
        Ok(put(format!("{}\n", text.as_ref()).as_bytes())?)
    }

    /// A piece of data that more follows.
    pub fn piece(self, text: &str) -> anyhow::Result<()> {
        Ok(put(text.as_bytes())?)
    }

    /// Where data goes that is not text.
    pub fn raw(self) -> impl Write {
        io::BufWriter::new(io::stdout().lock())
    }

    /// Data as a table for people or as JSON for programs.
    pub fn list<T: Serialize>(
        self,
        items: &[T],
        table: impl FnOnce() -> Table,
    ) -> anyhow::Result<()> {
        match self.form {
            Form::Json => self.json(&items),
            _ => Ok(put(table().render(self.colour).as_bytes())?),
        }
    }

    /// Data as lines of `name: value` for people or as JSON for programs.
    pub fn record(
        self,
        value: &impl Serialize,
        table: impl FnOnce() -> Table,
    ) -> anyhow::Result<()> {
        match self.form {
            Form::Json => self.json(value),
            _ => Ok(put(table().render(self.colour).as_bytes())?),
        }
    }

    /// The answer to something that was done: a sentence for people, JSON for programs, nothing
    /// in quiet form.
    pub fn answer(
        self,
        value: &impl Serialize,
        words: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self.form {
            Form::Json => self.json(value),
            Form::Human => self.line(words()),
            Form::Quiet => Ok(()),
        }
    }

    /// Words for people, beside the data.
    pub fn note(self, text: impl AsRef<str>) {
        if self.form != Form::Quiet {
            // If stderr is gone there is nobody to tell.
            let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
        }
    }

    /// Room for several progress bars on stderr; invisible unless a person watches.
    pub fn bars(self) -> MultiProgress {
        MultiProgress::with_draw_target(self.target())
    }

    /// A progress bar among others.
    pub fn bar_in(self, bars: &MultiProgress, template: &str) -> ProgressBar {
        // Without a target of its own: one that draws before it is added leaves a line behind.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        self.dress(bars.add(bar), template)
    }

    fn target(self) -> ProgressDrawTarget {
        if self.is_watched() {
            ProgressDrawTarget::stderr_with_hz(15)
        } else {
            ProgressDrawTarget::hidden()
        }
    }

    /// A progress bar on stderr; invisible unless a person watches.
    pub fn bar(self, template: &str) -> ProgressBar {
        self.dress(ProgressBar::with_draw_target(None, self.target()), template)
    }

    fn dress(self, bar: ProgressBar, template: &str) -> ProgressBar {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━╌"));
        }
        if self.is_watched() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        bar
    }

    /// `text` in the colour that `word` has everywhere.
    pub fn paint(self, word: &str, text: &str) -> String {
        table::paint(self.colour, word, text)
    }
}

fn put(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
