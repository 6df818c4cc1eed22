//! What a person sees of batches while they run: a bar each, or a line now and then in a log.

use std::time::Instant;

use indicatif::MultiProgress;
use longshore::{Batch, BatchId};

use crate::commands::watch::{Asking, View};
use crate::output::Output;

/// The bars of all batches that run here.
pub struct Show {
    output: Output,
    bars: MultiProgress,
}

/// One batch's bar.
pub struct BatchShow {
    view: View,
    quiet: bool,
}

impl Show {
    /// Nothing to see yet.
    pub fn new(output: Output) -> Self {
        Self { output, bars: output.bars() }
    }

    /// Shows a batch, of which `expected` rows are to come, and which ask in this way.
    pub fn batch(&self, id: &BatchId, expected: Option<u64>, asking: Asking) -> BatchShow {
        let bar = View::bar(self.output, &self.bars, id);
        let view = View::new(self.output, bar, expected).asking(asking);
        BatchShow { view, quiet: self.output.is_json() }
    }

    /// Words beside the bars.
    pub fn say(&self, words: &str) {
        self.bars.suspend(|| self.output.note(words));
    }
}

impl BatchShow {
    /// The batch has changed.
    pub fn update(&mut self, batch: &Batch) {
        // A program wants the last word only; and who closed our stdout is not shown anything.
        if !self.quiet {
            let _ = self.view.show(batch, Instant::now());
        }
    }

    /// Takes the bar away.
    pub fn close(&mut self) {
        self.view.close();
    }
}
