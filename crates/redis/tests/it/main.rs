//! Permits on Redis against the suite that every back end runs, and against what only a server of its own
//! has. Each test starts a private server (see `kit`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod gathered;
mod kit;
mod lines;
mod outages;
mod quarantine;
mod refusals;
mod storm;
mod tls;
