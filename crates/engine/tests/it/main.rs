//! The engine's tests, by topic, on the memory store and paused time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may give up loudly")]

mod bounded_pool;
mod client;
mod completer;
mod conformance;
mod cron;
mod elector;
mod fairness;
mod faults;
mod fuzz;
mod harness;
mod idle;
mod limits;
mod outcomes;
mod permit_conformance;
mod permit_gate;
mod regressions;
mod schedules;
mod services;
mod shutdown;
mod signals;
mod simulation;
mod slots;
mod store_outage;
mod tenants;
mod wall_clock;
