//! Opens the rows of a database by its URL.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use longshore::text::is_plain_name;

use super::{OpenMode, RowSource, SourceError, SqliteRows};
use crate::definition::Database;

/// Opens the rows of a URL: `sqlite:PATH`, relative to the working directory; with the features of
/// the same name also `postgres://…`, `mysql://…` and `odbc:…`, which connect on first use.
///
/// `env:NAME` is no URL but names the variable with one: [`Sources`] reads it.
pub fn open(url: &str) -> Result<Arc<dyn RowSource>, SourceError> {
    // A message has only the scheme: the rest may contain a password.
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_plain_name(scheme)) else {
        return Err(unknown("the database's address has no scheme"));
    };
    match scheme {
        "sqlite" => {
            // sqlite:PATH, sqlite://PATH and sqlite:///ABSOLUTE are all in use elsewhere.
            let path = rest.strip_prefix("//").unwrap_or(rest);
            Ok(Arc::new(SqliteRows::open(Path::new(path), OpenMode::Write)?))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(super::PostgresRows::open(url)?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(super::MysqlRows::open(url)?)),
        #[cfg(feature = "odbc")]
        "odbc" => Ok(Arc::new(super::OdbcRows::open(rest))),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(not_built(scheme, "postgres")),
        #[cfg(not(feature = "mysql"))]
        "mysql" | "mariadb" => Err(not_built(scheme, "mysql")),
        #[cfg(not(feature = "odbc"))]
        "odbc" => Err(not_built(scheme, "odbc")),
        _ => Err(unknown(&format!("unknown kind of database `{scheme}:`"))),
    }
}

fn unknown(message: &str) -> SourceError {
    SourceError::Data(format!("{message}; known are sqlite:, postgres:, mysql: and odbc:"))
}

#[cfg(not(all(feature = "mysql", feature = "odbc", feature = "postgres")))]
fn not_built(scheme: &str, feature: &str) -> SourceError {
    SourceError::Data(format!(
        "this build of longshore cannot read rows from `{scheme}:`; build it with --features {feature}"
    ))
}

type LookupEnv = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The databases of all batches of a process, each opened once and shared.
pub struct Sources {
    store_url: Option<String>,
    lookup_env: LookupEnv,
    overrides: HashMap<Database, Arc<dyn RowSource>>,
    opened: Mutex<HashMap<String, Arc<dyn RowSource>>>,
}

impl Sources {
    /// `store_url` is the database of the store's own tables, a SQLite file or a PostgreSQL
    /// database; `None` if the store is in memory. Rows of [`Database::Store`] are read there, over
    /// separate connections. `lookup_env` reads an environment variable.
    pub fn new(
        store_url: Option<String>,
        lookup_env: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let lookup_env = Box::new(lookup_env);
        Self { store_url, lookup_env, overrides: HashMap::new(), opened: Mutex::default() }
    }

    /// Uses `source` for this database instead of opening one.
    #[must_use]
    pub fn with(mut self, database: Database, source: Arc<dyn RowSource>) -> Self {
        self.overrides.insert(database, source);
        self
    }

    /// The rows of a database. Opening is slow, more so if another process has locked the file:
    /// call it once per batch, not per row. After a failure the next call tries again.
    pub fn resolve(&self, database: &Database) -> Result<Arc<dyn RowSource>, SourceError> {
        if let Some(source) = self.overrides.get(database) {
            return Ok(Arc::clone(source));
        }
        let url = self.url(database)?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = opened.get(&url) {
            return Ok(Arc::clone(source));
        }
        let source = open(&url)?;
        opened.insert(url, Arc::clone(&source));
        Ok(source)
    }

    fn url(&self, database: &Database) -> Result<String, SourceError> {
        match database {
            Database::Store => self.store_url.clone().ok_or_else(|| {
                let message = "the store is in memory and has no tables of yours: \
                             name the rows' database, or use a store in a file";
                SourceError::Data(message.to_owned())
            }),
            Database::Url(url) => match url.strip_prefix("env:") {
                None => Ok(url.clone()),
                Some(name) => (self.lookup_env)(name).ok_or_else(|| {
                    let shown =
                        if is_plain_name(name) { format!("`{name}`") } else { "of `env:`".to_owned() };
                    SourceError::Data(format!("the environment variable {shown} is not set"))
                }),
            },
        }
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URLs: they may contain passwords.
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Sources").field("opened", &opened).finish_non_exhaustive()
    }
}
