//! Tests of the PostgreSQL store: the suite that every store runs, and the features that only
//! PostgreSQL has. Each test starts a private server (see `test_server`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocked_runtime;
mod bulk_unit_locks;
mod bulk_units;
mod claim_plans;
mod claims;
mod clocks;
mod conformance;
mod failover;
mod growth;
mod idle_cache;
mod ledger;
mod link_faults;
mod lost_replies;
mod monitoring_views;
mod outages;
mod permits;
mod permits_chaos;
mod permits_durability;
mod pooler;
mod robustness;
mod schema;
mod session_watch;
mod slow_finishes;
mod test_server;
mod tls;
mod transaction_isolation;
mod transactions;
