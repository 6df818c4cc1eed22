//! The SQLite store against the suite that every store runs, and against what only a file has.

mod conformance;
mod kit;
