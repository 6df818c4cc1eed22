//! The output of many scripts in few files: how it is kept, and how it is read.
//!
//! A worker has two files in a folder: `<worker>.out` with the bytes as they came, and `<worker>.idx`
//! with one [`Entry`] per piece of them. A piece is in the first file before its entry is in the
//! second, and both carry a checksum: whatever a killed worker or a full disk left half is recognised.
//! Written by `worker/stream.rs`; [`find`] and [`Run::copy`] read.

mod index_entry;
mod reader;

pub use index_entry::{Channel, IndexEntry, batch_hash, crc32};
pub use reader::{CopyReport, Found, OutputPiece, Run, Which, find};

/// How the name of a file ends that has the bytes.
pub const DATA_EXTENSION: &str = "out";
/// How the name of a file ends that has the entries.
pub const INDEX_EXTENSION: &str = "idx";
