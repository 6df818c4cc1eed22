//! The engine's tests, by topic, on the memory store and paused time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may give up loudly")]

mod bounded_pool;
mod client;
mod clock;
mod conformance;
mod cron;
mod elector;
mod fairness;
mod faults;
mod harbour;
mod idle;
mod limits;
mod outage;
mod outcomes;
mod permission;
mod permits;
mod review;
mod services;
mod settling;
mod shutdown;
mod signals;
mod slots;
mod tenants;
mod timetable;
