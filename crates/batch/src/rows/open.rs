//! From a database's URL to its rows.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{OpenMode, RowSource, SourceError, SqliteRows};
use crate::definition::Database;

/// Opens the rows that a URL names: `sqlite:PATH`, relative to the working directory; with the
/// features of that name also `postgres://…`, `mysql://…` and `odbc:…`, which are connected to when
/// first needed.
///
/// `env:NAME` is not a URL but the place of one: [`Sources`] looks there.
pub fn open(url: &str) -> Result<Arc<dyn RowSource>, SourceError> {
    let Some((scheme, rest)) = url.split_once(':') else {
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
        // Only the scheme is repeated: what follows may hold a password.
        _ => Err(unknown(&format!("unknown kind of database `{}:`", cut(scheme)))),
    }
}

fn unknown(words: &str) -> SourceError {
    SourceError::Data(format!("{words}; known are sqlite:, postgres:, mysql: and odbc:"))
}

#[cfg(not(all(feature = "mysql", feature = "odbc", feature = "postgres")))]
fn not_built(scheme: &str, feature: &str) -> SourceError {
    SourceError::Data(format!(
        "this build of longshore cannot read rows from `{scheme}:`; build it with --features {feature}"
    ))
}

fn cut(scheme: &str) -> String {
    scheme.chars().take(20).collect()
}

type LookupEnv = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where a process finds the databases of all its batches: each is opened once and shared.
pub struct Sources {
    store_url: Option<String>,
    lookup_env: LookupEnv,
    given: HashMap<Database, Arc<dyn RowSource>>,
    opened: Mutex<HashMap<String, Arc<dyn RowSource>>>,
}

impl Sources {
    /// `store_url` is where the store's own tables are, a SQLite file or a PostgreSQL database;
    /// `None` if they are in memory. Rows of [`Database::Store`] are read there, by connections of
    /// their own. `lookup_env` reads an environment variable.
    pub fn new(
        store_url: Option<String>,
        lookup_env: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let lookup_env = Box::new(lookup_env);
        Self { store_url, lookup_env, given: HashMap::new(), opened: Mutex::default() }
    }

    /// Takes `source` for this database instead of opening one.
    #[must_use]
    pub fn with(mut self, database: Database, source: Arc<dyn RowSource>) -> Self {
        self.given.insert(database, source);
        self
    }

    /// The rows of a database. Opening takes a moment, longer if somebody has locked the file: call
    /// it once per batch, not per row. What could not be opened is tried again the next time.
    pub fn resolve(&self, database: &Database) -> Result<Arc<dyn RowSource>, SourceError> {
        if let Some(source) = self.given.get(database) {
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
                let words = "the store is in memory and has no tables of yours: \
                             name the rows' database, or use a store in a file";
                SourceError::Data(words.to_owned())
            }),
            Database::Url(url) => match url.strip_prefix("env:") {
                None => Ok(url.clone()),
                Some(name) => (self.lookup_env)(name).ok_or_else(|| {
                    SourceError::Data(format!("the environment variable `{name}` is not set"))
                }),
            },
        }
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URLs: they may hold passwords.
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Sources").field("opened", &opened).finish_non_exhaustive()
    }
}
