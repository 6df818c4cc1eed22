//! The batch crate's tests, by topic.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may give up loudly"
)]

mod alerts;
mod check;
mod end;
mod file;
mod handler;
mod initiator;
mod prompt;
mod report;
mod rows;
mod rules;
mod sql;
mod support;
