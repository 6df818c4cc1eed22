//! The PostgreSQL store against the suite that every store runs, and against what only a server of
//! its own has. Each test starts a private server (see `kit`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod callers;
mod claims;
mod conformance;
mod kit;
mod ledger;
mod outages;
mod permits;
mod permits_storm;
mod pooler;
mod quiet;
mod schema;
mod steady;
mod tls;
mod transactions;
