//! The conformance suite: the same cases for every store.
//!
//! A case is an `async fn(&StoreFixture)`. The list in `cases.rs` is the only one: a case that is missing from
//! it is dead code and fails the lints. Every case ends with `verify`, which must find no violations.

#![expect(clippy::unwrap_used, clippy::panic, reason = "cases are tests: they fail by a panic")]

#[macro_use]
mod cases;

mod admin;
mod batch_limits;
mod batch_sums;
mod batches;
mod capacity;
mod caps;
mod changes;
mod claim_order;
mod dedup;
mod dependencies;
mod effects;
mod generations;
mod helpers;
mod lanes;
mod leases;
mod ledger_budgets;
mod ledger_calls;
mod ledger_helpers;
mod ledger_keys;
mod ledger_profiles;
mod ledger_provider_batches;
mod ledger_replies;
mod ledger_session_end;
mod ledger_token_buckets;
mod ledger_tokens;
mod ledger_usage;
mod listing;
mod maintenance;
pub mod monitoring_views;
mod outcomes;
mod permits_chaos;
mod permits_helpers;
mod permits_leases;
mod permits_ordering;
mod permits_regressions;
mod permits_resize;
mod permits_stats;
mod permits_wakeups;
mod schedules;
mod scopes;
mod sending;
mod sessions;
mod shares;
mod tenants;
mod weights;

use std::pin::Pin;

use crate::{PermitsFixture, SqlStoreFixture, StoreFixture};

macro_rules! dispatcher {
    ($(#[$doc:meta])* $list:ident, $find:ident, $fixture:ty;
        $($topic:ident { $($case:ident)* })*) => {
        $(#[$doc])*
        pub const $list: &[&str] = &[$($(concat!(stringify!($topic), "::", stringify!($case))),*),*];

        fn $find<'a>(name: &str, fixture: &'a $fixture) -> Case<'a> {
            match name {
                $($(concat!(stringify!($topic), "::", stringify!($case)) => {
                    Box::pin($topic::$case(fixture))
                })*)*
                other => unreachable!("there is no case `{other}`"),
            }
        }
    };
}
type Case<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

__with_cases!(dispatcher,
    /// Every case, as `topic::case`.
    CASES, find, StoreFixture;
);
__with_sql_cases!(dispatcher,
    /// The cases for stores that run SQL effects, as `topic::case`.
    SQL_CASES, find_sql, dyn SqlStoreFixture;
);
__with_permit_cases!(dispatcher,
    /// The cases for bounded pools, as `topic::case`.
    PERMIT_CASES, find_permits, PermitsFixture;
);

/// Runs one case by its name in [`CASES`], then checks the store with `verify`.
pub async fn run(name: &str, fixture: &StoreFixture) {
    find(name, fixture).await;
    verify(fixture).await;
}

/// Runs one case by its name in [`SQL_CASES`], on a table `account` that it creates first.
pub async fn run_sql(name: &str, sql: &dyn SqlStoreFixture) {
    sql.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)");
    sql.execute("INSERT INTO account VALUES (1, 100)");
    find_sql(name, sql).await;
    verify(sql.fixture()).await;
}

/// Runs one case by its name in [`PERMIT_CASES`].
pub async fn run_permits(name: &str, fixture: &PermitsFixture) {
    find_permits(name, fixture).await;
}

async fn verify(fixture: &StoreFixture) {
    let violations = fixture.store.verify().await.unwrap();
    assert!(violations.is_empty(), "verify found {violations:#?}");
}

/// Generates a `#[tokio::test]` for every case. `$make` is an `async fn() -> StoreFixture`.
#[macro_export]
macro_rules! conformance_suite {
    ($make:path) => {
        $crate::__with_cases! { $crate::__suite, $make, run; }
    };
}

/// Generates a `#[tokio::test]` for every case with SQL effects. `$make` is an
/// `async fn() -> impl SqlStoreFixture`.
#[macro_export]
macro_rules! effects_suite {
    ($make:path) => {
        $crate::__with_sql_cases! { $crate::__suite, $make, run_sql; }
    };
}

/// Generates a `#[tokio::test]` for every case of bounded pools. `$make` is an
/// `async fn() -> PermitsFixture`.
#[macro_export]
macro_rules! permits_suite {
    ($make:path) => {
        $crate::__with_permit_cases! { $crate::__suite, $make, run_permits; }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($make:path, $run:ident; $($topic:ident { $($case:ident)* })*) => {
        $(mod $topic {
            #[allow(unused_imports, reason = "the maker may be a path or a name of the outer scope")]
            use super::*;
            $(#[tokio::test]
            async fn $case() {
                let fixture = $make().await;
                let name = concat!(stringify!($topic), "::", stringify!($case));
                $crate::conformance::$run(name, &fixture).await;
            })*
        })*
    };
}
