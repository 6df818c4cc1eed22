//! The output of many scripts in few files: how it is kept, and how it is read.
//!
//! A worker has two files in a folder: `<worker>.out` with the bytes as they came, and `<worker>.idx`
//! with one [`Entry`] per piece of them. A piece is in the first file before its entry is in the
//! second, and both carry a checksum: whatever a killed worker or a full disk left half is recognised.
//! Written by `worker/stream.rs`; [`find`] and [`Run::copy`] read.

mod entry;
mod find;

pub use entry::{Channel, Entry, batch_mark, checksum};
pub use find::{Copied, Found, Piece, Run, Which, find};

/// How the name of a file ends that has the bytes.
pub const BYTES: &str = "out";
/// How the name of a file ends that has the entries.
pub const INDEX: &str = "idx";
