//! The SQLite store against the suite that every store runs, and against what only a file has.

mod conformance;
mod faults;
mod kit;
mod processes;
mod schema;
mod transactions;
