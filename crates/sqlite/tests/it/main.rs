//! The SQLite store against the suite that every store runs, and against what only a file has.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod conformance;
mod deferred;
mod fairness;
mod faults;
mod kit;
mod ledger;
mod permits;
mod permits_storm;
mod processes;
mod schema;
mod transactions;
