//! The only module that prints: data to stdout, messages to stderr.
//!
//! There are three forms: tables and sentences for people, JSON for programs, and quiet. Colours
//! and progress bars are used only on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

pub use table::{Table, cell, clean_lines, paint, right};

mod table;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    /// For people.
    #[default]
    Human,
    /// For programs: one JSON document, or one per line.
    Json,
    /// Data only, no messages.
    Quiet,
}

/// Prints data and messages.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    form: OutputForm,
    colour: bool,
}

impl Output {
    /// An output of this form; colours only if stdout is a terminal and `NO_COLOR` is not set.
    pub fn new(form: OutputForm) -> Self {
        let wanted = std::env::var_os(crate::env::NO_COLOR).is_none_or(|value| value.is_empty());
        Self { form, colour: wanted && form == OutputForm::Human && io::stdout().is_terminal() }
    }

    /// Whether the output is JSON.
    pub fn is_json(self) -> bool {
        self.form == OutputForm::Json
    }

    /// Whether data may be coloured.
    pub fn is_coloured(self) -> bool {
        self.colour
    }

    /// Whether messages are suppressed.
    pub fn is_quiet(self) -> bool {
        self.form == OutputForm::Quiet
    }

    /// Whether progress is shown on a terminal.
    pub fn is_watched(self) -> bool {
        self.form == OutputForm::Human && io::stderr().is_terminal()
    }

    /// Prints one JSON document on one line.
    pub fn json(self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        Ok(write_stdout(&text)?)
    }

    /// Prints a line of data.
    pub fn line(self, text: impl AsRef<str>) -> anyhow::Result<()> {
        Ok(write_stdout(format!("{}\n", text.as_ref()).as_bytes())?)
    }

    /// Prints data without a newline.
    pub fn piece(self, text: &str) -> anyhow::Result<()> {
        Ok(write_stdout(text.as_bytes())?)
    }

    /// A writer for binary data.
    pub fn raw(self) -> impl Write {
        io::BufWriter::new(io::stdout().lock())
    }

    /// Prints data as a table for people or as JSON for programs.
    pub fn list<T: Serialize>(self, items: &[T], table: impl FnOnce() -> Table) -> anyhow::Result<()> {
        match self.form {
            OutputForm::Json => self.json(&items),
            _ => Ok(write_stdout(table().render(self.colour).as_bytes())?),
        }
    }

    /// Prints data as lines of `name  value` for people or as JSON for programs.
    pub fn record(self, value: &impl Serialize, table: impl FnOnce() -> Table) -> anyhow::Result<()> {
        match self.form {
            OutputForm::Json => self.json(value),
            _ => Ok(write_stdout(table().render(self.colour).as_bytes())?),
        }
    }

    /// Prints the result of a command: a sentence for people, JSON for programs, nothing in quiet
    /// form.
    pub fn answer(self, value: &impl Serialize, words: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.form {
            OutputForm::Json => self.json(value),
            OutputForm::Human => self.line(words()),
            OutputForm::Quiet => Ok(()),
        }
    }

    /// Prints a message for people to stderr.
    pub fn note(self, text: impl AsRef<str>) {
        if self.form != OutputForm::Quiet {
            // If stderr is closed, nothing can be reported.
            let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
        }
    }

    /// A group of progress bars on stderr; hidden unless it is a terminal.
    pub fn bars(self) -> MultiProgress {
        MultiProgress::with_draw_target(self.target())
    }

    /// A progress bar in a group.
    pub fn bar_in(self, bars: &MultiProgress, template: &str) -> ProgressBar {
        // Hidden at first: a bar that draws before it is added to the group leaves a line behind.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        self.style_bar(bars.add(bar), template)
    }

    fn target(self) -> ProgressDrawTarget {
        if self.is_watched() { ProgressDrawTarget::stderr_with_hz(15) } else { ProgressDrawTarget::hidden() }
    }

    /// A progress bar on stderr; hidden unless it is a terminal.
    pub fn bar(self, template: &str) -> ProgressBar {
        self.style_bar(ProgressBar::with_draw_target(None, self.target()), template)
    }

    fn style_bar(self, bar: ProgressBar, template: &str) -> ProgressBar {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━╌"));
        }
        if self.is_watched() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        bar
    }

    /// `text` in the colour of the state `word`.
    pub fn paint(self, word: &str, text: &str) -> String {
        table::paint(self.colour, word, text)
    }
}

/// Creates or empties a file for data. A new one is private: rows and reports quote payloads.
#[cfg(feature = "standard")]
pub fn private_file(path: &std::path::Path) -> anyhow::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;

    use anyhow::Context;

    let file = std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
