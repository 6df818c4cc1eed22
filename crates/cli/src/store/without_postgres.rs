//! PostgreSQL in the quickstart build: its URLs are recognised and rejected.

use std::convert::Infallible;
use std::str::FromStr;

use longshore_sqlite::SqliteStore;

use crate::error::{WithHint, usage};
use crate::settings::Settings;

/// No value of this type exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresStoreUrl(Infallible);

impl FromStr for PostgresStoreUrl {
    type Err = anyhow::Error;

    fn from_str(_: &str) -> anyhow::Result<Self> {
        Err(usage("the quickstart build has no PostgreSQL store"))
            .hint("for a build that has: cargo build --release")
    }
}

impl PostgresStoreUrl {
    pub fn with_password(&self) -> &str {
        match self.0 {}
    }

    pub fn server(&self) -> Option<String> {
        match self.0 {}
    }

    pub fn through_port(&self, _: u16) -> Self {
        match self.0 {}
    }

    pub async fn open(&self, _: &Settings) -> anyhow::Result<SqliteStore> {
        match self.0 {}
    }
}

impl std::fmt::Display for PostgresStoreUrl {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {}
    }
}
