//! The pool's tests, by topic.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

#[cfg(feature = "axum")]
mod axum;
mod calls;
#[cfg(feature = "database")]
mod database;
#[cfg(feature = "engine")]
mod engine;
mod foreign_workers;
mod gate;
mod helpers;
#[cfg(feature = "metrics")]
mod metrics;
mod misbehaving;
mod one_shot;
mod orphans;
mod processes;
mod queue;
mod sdk;
mod spans;
mod stuck_workers;
mod thread_lifecycle;
mod timeouts;
