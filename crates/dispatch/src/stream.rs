//! Output of many scripts in few files: the format and its reader.
//!
//! Each worker has two files in a folder: `<worker>.out` with the bytes in order of arrival, and
//! `<worker>.idx` with one [`IndexEntry`] per piece. A piece is written before its index entry, and
//! both have checksums. So a reader recognises what a killed worker or a full disk left incomplete.
//! `worker/stream_writer.rs` writes the files; [`find`] and [`RunOutput::copy`] read them.

mod index_entry;
mod reader;

pub use index_entry::{IndexEntry, OutputChannel, batch_hash};
pub use reader::{CopyReport, OutputPiece, OutputSearch, RunOutput, RunSelector, find};

/// Extension of the data file.
pub const DATA_EXTENSION: &str = "out";
/// Extension of the index file.
pub const INDEX_EXTENSION: &str = "idx";
