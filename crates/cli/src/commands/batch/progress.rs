//! Progress of running batches: a bar each, or occasional lines in a log.

use std::time::Instant;

use indicatif::MultiProgress;
use longshore::{Batch, BatchId};

use crate::commands::watch::{ModelAccess, WatchedBatch};
use crate::output::Output;

/// The bars of all batches that run in this process.
pub struct ProgressDisplay {
    output: Output,
    bars: MultiProgress,
}

/// One batch's bar.
pub struct BatchBar {
    view: WatchedBatch,
    quiet: bool,
}

impl ProgressDisplay {
    /// Without bars.
    pub fn new(output: Output) -> Self {
        Self { output, bars: output.bars() }
    }

    /// Adds a bar for a batch that expects `expected` rows and calls models in this way.
    pub fn batch(&self, id: &BatchId, expected: Option<u64>, model_access: ModelAccess) -> BatchBar {
        let bar = WatchedBatch::bar(self.output, &self.bars, id);
        let view = WatchedBatch::new(self.output, bar, expected).model_access(model_access);
        BatchBar { view, quiet: self.output.is_json() }
    }

    /// Prints a message above the bars.
    pub fn print(&self, words: &str) {
        self.bars.suspend(|| self.output.note(words));
    }
}

impl BatchBar {
    /// Redraws the bar.
    pub fn update(&mut self, batch: &Batch) {
        // JSON output has only the final summary. Progress is lost if the reader closed stdout.
        if !self.quiet {
            let _ = self.view.show(batch, Instant::now());
        }
    }

    /// Removes the bar.
    pub fn close(&mut self) {
        self.view.close();
    }
}
