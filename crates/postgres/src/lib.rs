//! Longshore's store for many machines: PostgreSQL.
//!
//! Every verb is one transaction, of a few statements that each concern many units. There are no
//! session-wide locks, prepared statements or settings, so a transaction pooler may sit in between.
//! What wakes others (`NOTIFY`) happens after the commit and coalesced; without a connection that
//! can listen, workers poll, the more seldom the longer nothing comes.
//!
//! Decisions are those of `longshore_core`, as in the SQLite store, whose files have the same names.

mod admin;
mod advisory_lock;
mod background_tasks;
mod batch;
mod checkpoint;
mod claim;
mod commit_guard;
mod connect;
mod counter_rollup;
mod dependency_outbox;
mod effects;
mod error;
mod finish;
mod ledger;
mod listing;
mod maintenance;
mod migrate;
mod notifier;
mod permits;
mod poll_backoff;
mod prune;
mod queries;
mod queue_limits;
mod row;
mod schedules;
mod send;
mod session;
mod single_statement;
mod start_log;
mod store;
mod streams;
mod stride;
mod tenants;
mod tx;
mod typed_params;
mod verify;

pub use connect::{ClockSource, Listen, PostgresOptions, run_statement, server_time};
pub use store::{CommitNotice, PostgresStore, TransactionResult};
pub use tokio_postgres;
