//! The batch crate's tests, by topic.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may give up loudly"
)]

mod alert_monitor;
mod alerts;
mod bulk;
mod check;
mod end;
mod ended_rows;
mod file;
mod fuzz;
mod handler;
mod initiator;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "odbc")]
mod odbc;
#[cfg(feature = "postgres")]
mod postgres;
mod prompt;
mod prompts;
#[cfg(any(feature = "mysql", feature = "odbc", feature = "postgres"))]
mod remote;
mod report;
mod revisions;
mod rows;
mod sql;
mod support;
mod verdict_rules;
