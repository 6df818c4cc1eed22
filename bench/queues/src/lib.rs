//! What `bench-queues` and `bench-scale` share: work through the engine, a private PostgreSQL, and medians.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

pub mod figures;
pub mod ours;
pub mod server;
