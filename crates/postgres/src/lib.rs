//! Longshore's store for many machines: PostgreSQL.
//!
//! Every verb is one transaction, of a few statements that each concern many units. There are no
//! session-wide locks, prepared statements or settings, so a transaction pooler may sit in between.
//! What wakes others (`NOTIFY`) happens after the commit and coalesced; without a connection that
//! can listen, workers poll, the more seldom the longer nothing comes.
//!
//! Decisions are those of `longshore_core`, as in the SQLite store, whose files have the same names.

mod batch;
mod capacity;
mod checkpoint;
mod claim;
mod connect;
mod effects;
mod errands;
mod error;
mod feed;
mod finish;
mod fold;
mod inspect;
mod ledger;
mod lists;
mod lock;
mod lone;
mod maintain;
mod migrate;
mod operate;
mod param;
mod permits;
mod poll;
mod promise;
mod prune;
mod row;
mod schedules;
mod send;
mod session;
mod starts;
mod store;
mod streams;
mod tenants;
mod turns;
mod tx;
mod untold;
mod verify;

pub use connect::{Listen, PostgresOptions, Terms, run_statement, server_time};
pub use store::{InTransaction, Notice, PostgresStore};
pub use tokio_postgres;
