//! Permits on Redis: the conformance suite that every back end runs, and tests that need their own
//! server. Each test starts a private server (see `helpers`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod batched;
mod chaos;
mod conformance;
mod helpers;
mod outages;
mod quarantine;
mod refusals;
mod tls;
mod wait_queue;
