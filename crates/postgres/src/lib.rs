//! Longshore's store for many machines: PostgreSQL.
//!
//! Every operation is one transaction of a few statements, each of which handles many units. The
//! store uses no session-level locks, prepared statements or settings, so that a transaction pooler
//! may sit in between. After the commit, one coalesced `NOTIFY` wakes workers of other processes.
//! Where no connection can listen, workers poll; the interval doubles while they find nothing.
//!
//! `longshore_core` makes the decisions, as for the SQLite store. Files of the two stores have the
//! same names.

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
mod heartbeat_runtime;
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
mod replication;
mod row;
mod schedules;
mod send;
mod server_clock;
mod session;
mod single_statement;
mod start_log;
mod store;
mod streams;
mod stride;
mod tenants;
mod timeline;
mod tx;
mod typed_params;
mod verify;

pub use connect::{ClockSource, Listen, PostgresOptions, run_statement};
pub use migrate::PostgresMigrator;
pub use replication::{ReplicationStatus, Standby, replication_status};
pub use server_clock::{CLOCK_SKEW_WARNING, ClockSkew, clock_skew};
pub use store::{PostCommitWork, PostgresStore, TransactionResult};
pub use tokio_postgres;
