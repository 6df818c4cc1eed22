//! Longshore's embedded store: one SQLite file, many processes.
//!
//! One writer thread per process commits whatever has gathered in one transaction, and a second
//! one brings the log to disk meanwhile; reads have connections of their own. What `send` and
//! `finish` confirmed survives a power failure (the promise of `synchronous=FULL`, the default).
//! Claims, starts and beats do not wait for the disk, since after a power failure their session is
//! gone too.
//!
//! Several processes may share the file; they wake each other by watching its `-wal`. Network file
//! systems are refused: their locks and shared memory do not hold.

mod batch;
mod body;
mod busy;
mod capacity;
mod checkpoint;
mod claim;
mod effects;
mod error;
mod fairness;
mod finish;
mod hot;
mod inspect;
mod known;
mod ledger;
mod lists;
mod location;
mod maintain;
mod migrate;
mod operate;
mod permits;
mod row;
mod schedules;
mod send;
mod session;
mod store;
mod sync;
mod tenants;
mod tx;
mod verify;
mod watch;
mod writer;

pub use location::is_local;
pub use store::{SqliteOptions, SqliteStore, Synchronous};

/// The driver, for callers who bring their own transaction to [`SqliteStore::send_in`].
pub use rusqlite;
