//! Opens the rows of a database by its URL.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore::text::is_plain_name;
use longshore::{AlertSink, LogAlertSink};
use longshore_databases::DatabaseTarget;
use tokio::time::Instant;

use super::fingerprint::require_database;
use super::outage::{WatchedRows, report_unusable};
use super::{DatabaseRows, OpenMode, RowSource, SourceError};
use crate::definition::{Database, Definition};

/// Opens the rows of a URL: `sqlite:PATH`, relative to the working directory; with the features of
/// the same name also `postgres://…`, `mysql://…` and `odbc:…`, which connect on first use.
///
/// `env:NAME` and `file:PATH` are no URLs but name the variable or file with one: [`Sources`] reads it.
pub fn open(url: &str) -> Result<Arc<dyn RowSource>, SourceError> {
    // A message has only the scheme: the rest may contain a password.
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_plain_name(scheme)) else {
        return Err(unknown("the database's address has no scheme"));
    };
    match scheme {
        "sqlite" => {
            // sqlite:PATH, sqlite://PATH and sqlite:///ABSOLUTE are all in use elsewhere.
            let path = rest.strip_prefix("//").unwrap_or(rest);
            Ok(Arc::new(DatabaseRows::sqlite(Path::new(path), OpenMode::Write)?))
        }
        "postgres" | "postgresql" if cfg!(not(feature = "postgres")) => Err(not_built(scheme, "postgres")),
        "mysql" | "mariadb" if cfg!(not(feature = "mysql")) => Err(not_built(scheme, "mysql")),
        "odbc" if cfg!(not(feature = "odbc")) => Err(not_built(scheme, "odbc")),
        "postgres" | "postgresql" => server(DatabaseTarget::Postgres(url.to_owned())),
        "mysql" | "mariadb" => server(DatabaseTarget::Mysql(url.to_owned())),
        "odbc" => server(DatabaseTarget::Odbc(rest.to_owned())),
        _ => Err(unknown(&format!("unknown kind of database `{scheme}:`"))),
    }
}

fn server(target: DatabaseTarget) -> Result<Arc<dyn RowSource>, SourceError> {
    Ok(Arc::new(DatabaseRows::server(target)?))
}

fn unknown(message: &str) -> SourceError {
    SourceError::Data(format!("{message}; known are sqlite:, postgres:, mysql: and odbc:"))
}

fn not_built(scheme: &str, feature: &str) -> SourceError {
    SourceError::Data(format!(
        "this build of longshore cannot read rows from `{scheme}:`; build it with --features {feature}"
    ))
}

/// Whether a URL of the rows' database contains a password.
pub fn has_password(url: &str) -> bool {
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    let is_set = |name: &str, value: &str| {
        let name = name.trim().to_uppercase();
        let is_secret = ["PWD", "PASSWORD", "TOKEN"].iter().any(|secret| name.ends_with(secret));
        is_secret && !value.trim().is_empty()
    };
    let settings = |text: &str, separator: char| {
        text.split(separator).filter_map(|one| one.split_once('=')).any(|(name, value)| is_set(name, value))
    };
    match scheme {
        "odbc" => settings(rest, ';'),
        "postgres" | "postgresql" | "mysql" | "mariadb" => {
            let (address, options) = rest.split_once('?').unwrap_or((rest, ""));
            let user = address.rsplit_once('@').map_or("", |(user, _)| user.trim_start_matches('/'));
            user.split_once(':').is_some_and(|(_, password)| !password.is_empty()) || settings(options, '&')
        }
        _ => false,
    }
}

/// Minimum time between two attempts to open a database once more.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

type LookupEnv = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The databases of all batches of a process, each opened once and shared.
pub struct Sources {
    store_url: Option<String>,
    lookup_env: LookupEnv,
    alerts: Arc<dyn AlertSink>,
    overrides: HashMap<Database, Arc<dyn RowSource>>,
    opened: Mutex<HashMap<String, Arc<dyn RowSource>>>,
    /// When databases were opened once more.
    reopened: Mutex<HashMap<String, Instant>>,
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
        let alerts = Arc::new(LogAlertSink);
        let (overrides, opened, reopened) = (HashMap::new(), Mutex::default(), Mutex::default());
        Self { store_url, lookup_env, alerts, overrides, opened, reopened }
    }

    /// Sets the receiver of alerts about outages, instead of the log. Call it before [`Self::with`].
    #[must_use]
    pub fn with_alert_sink(mut self, alerts: Arc<dyn AlertSink>) -> Self {
        self.alerts = alerts;
        self
    }

    /// Uses `source` for this database instead of opening one.
    #[must_use]
    pub fn with(mut self, database: Database, source: Arc<dyn RowSource>) -> Self {
        let source = Arc::new(WatchedRows::new(source, Arc::clone(&self.alerts)));
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
        let source = self.open(&url)?;
        opened.insert(url, Arc::clone(&source));
        Ok(source)
    }

    /// The rows of a batch, if the database is the one that it was started with. A database that cannot be used is
    /// reported in the log.
    pub async fn resolve_for(&self, definition: &Definition) -> Result<Arc<dyn RowSource>, SourceError> {
        let source = self.resolve(&definition.database).inspect_err(report_unusable)?;
        let checked = match require_database(definition, &*source).await {
            Err(error @ SourceError::WrongDatabase { .. }) => self.reopen_for(definition, error).await,
            checked => checked.map(|()| source),
        };
        match checked {
            // An outage is reported once, where it is noticed.
            Err(error) if error.is_retryable() => Err(error),
            checked => checked.inspect_err(report_unusable),
        }
    }

    /// Opens the database once more: since the source was opened, another database may have taken its place, to which an
    /// operator has bound the batch. Batches that are bound to the old one keep their source, which refuses the new one.
    async fn reopen_for(
        &self,
        definition: &Definition,
        error: SourceError,
    ) -> Result<Arc<dyn RowSource>, SourceError> {
        let url = self.url(&definition.database)?;
        if self.overrides.contains_key(&definition.database) || !self.may_reopen(&url) {
            return Err(error);
        }
        let source = self.open(&url)?;
        require_database(definition, &*source).await?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(url, Arc::clone(&source));
        Ok(source)
    }

    /// Whether a database may be opened once more: every row of a batch that is bound to another one asks.
    fn may_reopen(&self, url: &str) -> bool {
        let (mut reopened, now) =
            (self.reopened.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let is_due = reopened.get(url).is_none_or(|at| now.duration_since(*at) >= REOPEN_INTERVAL);
        if is_due {
            reopened.insert(url.to_owned(), now);
        }
        is_due
    }

    fn open(&self, url: &str) -> Result<Arc<dyn RowSource>, SourceError> {
        Ok(Arc::new(WatchedRows::new(open(url)?, Arc::clone(&self.alerts))))
    }

    /// The URL of a database, read from its variable or file. It may contain a password.
    pub fn url(&self, database: &Database) -> Result<String, SourceError> {
        match database {
            Database::Store => self.store_url.clone().ok_or_else(|| {
                let message = "the store is in memory and has no tables of yours: \
                             name the rows' database, or use a store in a file";
                SourceError::Data(message.to_owned())
            }),
            Database::Url(url) => match (url.strip_prefix("env:"), url.strip_prefix("file:")) {
                (None, None) => Ok(url.clone()),
                (None, Some(path)) => {
                    let text = std::fs::read_to_string(path);
                    text.map(|text| text.trim().to_owned()).map_err(|error| {
                        SourceError::Data(format!("{path} with the database's URL: {error}"))
                    })
                }
                (Some(name), _) => (self.lookup_env)(name).ok_or_else(|| {
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
