//! Longshore's embedded store: one SQLite file, many processes.
//!
//! One writer thread per process commits all pending operations in one transaction, and a second
//! thread syncs the log to disk meanwhile; reads have their own connections. What `send` and
//! `finish` confirmed survives a power failure (the guarantee of `synchronous=FULL`, the default).
//! Claims, starts and heartbeats do not wait for the disk, since their session does not survive a
//! power failure either.
//!
//! Several processes may share the file; they wake each other by watching its `-wal`. Network file
//! systems are rejected: locks and shared memory do not work there.

mod admin;
mod batch;
mod busy_retry;
mod checkpoint;
mod claim;
mod claim_cache;
mod effects;
mod error;
mod filesystem_check;
mod finish;
mod ledger;
mod listing;
mod maintenance;
mod migrate;
mod overflow_values;
mod permits;
mod prepared;
mod queries;
mod queue_limits;
mod row;
mod schedules;
mod send;
mod session;
mod store;
mod tenants;
mod tx;
mod verify;
mod wal_sync;
mod wal_watcher;
mod writer;

pub use filesystem_check::is_local;
pub use migrate::SqliteMigrator;
pub use store::{SqliteOptions, SqliteStore, Synchronous};

/// The driver, for callers that pass their own transaction to [`SqliteStore::send_in`].
pub use rusqlite;
