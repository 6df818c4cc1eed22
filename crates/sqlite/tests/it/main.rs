//! The SQLite store: the conformance suite that every store runs, and tests that need a file.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod blocked_runtime;
mod chunks;
mod conformance;
mod deferred;
mod fairness;
mod faults;
mod helpers;
mod ledger;
mod listing;
mod monitoring_views;
mod permits;
mod permits_chaos;
mod processes;
mod schema;
mod slow_effects;
mod space;
mod transactions;
