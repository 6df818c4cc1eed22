//! The pool's tests, by topic.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may give up loudly")]

#[cfg(feature = "axum")]
mod axum;
mod calls;
#[cfg(feature = "database")]
mod database;
#[cfg(feature = "engine")]
mod engine;
mod gate;
mod kit;
mod lives;
#[cfg(feature = "metrics")]
mod metering;
mod misbehaving;
mod one_shot;
mod orphans;
mod processes;
mod queueing;
mod sdk;
mod spans;
mod strangers;
mod timeouts;
mod wedges;
