//! The terminal in a build without live views: there is never a screen.

use std::io::{self, IsTerminal};

use crate::output::Output;

/// No value of this type exists.
pub(crate) enum Screen {}

impl Screen {
    /// Prints how to get a live view, if stdout is a terminal.
    pub(crate) fn open(output: Output) -> Option<Self> {
        if !output.is_json() && io::stdout().is_terminal() {
            output.note("this build has no live view; for one: cargo build --release --features tui");
        }
        None
    }

    pub(crate) fn size(&self) -> (usize, usize) {
        match *self {}
    }

    pub(crate) fn draw_lines(&mut self, _: &[String]) -> io::Result<()> {
        match *self {}
    }

    pub(crate) async fn quit(&mut self) {
        match *self {}
    }
}
