//! Providers and response schemas, by topic: the simulated ones on paused time, the real ones against a fake.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may give up loudly")]

mod any_text;
mod desk;
mod echo;
mod profile;
mod samples;
mod schema;
mod script_mistakes;
mod scripted;
mod talk;
mod wires;
