//! Parses a store's URL, and opens the store.

#[cfg(feature = "standard")]
mod postgres;
#[cfg(not(feature = "standard"))]
#[path = "store/without_postgres.rs"]
mod postgres;
#[cfg(feature = "standard")]
mod schema;
#[cfg(feature = "standard")]
mod scratch;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use longshore::accounts::Ledger;
use longshore::migration::MigrateOnOpen;
use longshore::text::is_plain_name;
use longshore::{MemoryStore, Permits, Store};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_trusted_path::{PathError, Sharing, check_database};

use crate::error::{WithHint, did_you_mean, hinted, usage};
use crate::settings::Settings;

pub use postgres::PostgresStoreUrl;
#[cfg(feature = "standard")]
pub use schema::SchemaMigrator;
#[cfg(feature = "standard")]
pub use scratch::ScratchDatabase;

/// A store's URL. Printed without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `postgres://…`
    Postgres(PostgresStoreUrl),
    /// `memory:`: lost with the process, so only for commands that run in a single one.
    Memory,
}

impl FromStr for StoreUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (scheme, rest) = match text.split_once(':') {
            Some(parts) if is_plain_name(parts.0) => parts,
            None if is_plain_name(text) => {
                return Err(usage(format!("store `{text}` is not a URL")))
                    .hint(format!("did you mean `sqlite:{text}`?"));
            }
            _ => {
                return Err(usage("the store is not a URL"))
                    .hint("write sqlite:PATH or postgres://USER:PASSWORD@HOST:5432/DATABASE");
            }
        };
        match scheme {
            "sqlite" => sqlite(text, rest),
            "memory" => Ok(Self::Memory),
            "postgres" | "postgresql" => text.parse().map(Self::Postgres),
            other => Err(unknown(other)),
        }
    }
}

fn sqlite(text: &str, rest: &str) -> anyhow::Result<StoreUrl> {
    // sqlite:PATH, sqlite://PATH and sqlite:///ABSOLUTE are all in use elsewhere.
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err(usage(format!("store `{text}` names no file"))).hint("write sqlite:PATH");
    }
    Ok(StoreUrl::Sqlite(path.into()))
}

fn unknown(scheme: &str) -> anyhow::Error {
    let suggestion = did_you_mean(scheme, ["sqlite", "memory", "postgres"]);
    let suggestion =
        suggestion.map_or(String::new(), |suggestion| format!(", did you mean `{suggestion}:`?"));
    usage(format!("unknown kind of store `{scheme}:`{suggestion}"))
}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // With two more slashes, or the path's own would be parsed as the URL's.
            Self::Sqlite(path) if path.as_os_str().as_encoded_bytes().starts_with(b"//") => {
                write!(f, "sqlite://{}", path.display())
            }
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
            Self::Memory => f.write_str("memory:"),
        }
    }
}

impl StoreUrl {
    /// The URL with its password, for the environment of a child process; never for its arguments,
    /// which every user can read.
    pub fn with_password(&self) -> String {
        match self {
            Self::Postgres(url) => url.with_password().to_owned(),
            other => other.to_string(),
        }
    }
}

/// Opens the settings' store.
pub async fn open(settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    #[cfg(feature = "standard")]
    if let Some(server) = &settings.server {
        let store = longshore_web::client::RemoteStore::new(server.clone());
        store.check().await?;
        return Ok(Arc::new(store));
    }
    open_at(&settings.store, settings).await
}

/// A store and its ledger.
pub type StoreAndLedger = (Arc<dyn Store>, Arc<dyn Ledger>);

/// Opens the settings' store with its ledger.
pub async fn open_with_ledger(settings: &Settings) -> anyhow::Result<StoreAndLedger> {
    #[cfg(feature = "standard")]
    if settings.server.is_some() {
        return Err(usage("this command does not work through a server"))
            .hint("run it where the store is, with --store");
    }
    open_with_ledger_at(&settings.store, settings).await
}

/// Opens a persistent store with its ledger.
pub async fn open_with_ledger_at(url: &StoreUrl, settings: &Settings) -> anyhow::Result<StoreAndLedger> {
    require_persistent(url)?;
    open_any_with_ledger(url, settings).await
}

/// Opens a persistent store.
pub async fn open_at(url: &StoreUrl, settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    require_persistent(url)?;
    open_any(url, settings).await
}

fn require_persistent(url: &StoreUrl) -> anyhow::Result<()> {
    match url {
        StoreUrl::Memory => Err(usage("a `memory:` store would be gone when this command ends"))
            .hint("use sqlite:PATH or postgres://…; only `bench` can measure memory:"),
        StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) => Ok(()),
    }
}

/// Opens a store of any kind, for commands that run in a single process.
pub async fn open_any(url: &StoreUrl, settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    Ok(open_any_with_ledger(url, settings).await?.0)
}

async fn open_any_with_ledger(url: &StoreUrl, settings: &Settings) -> anyhow::Result<StoreAndLedger> {
    Ok(match url {
        StoreUrl::Sqlite(path) => as_both(open_sqlite(path, settings)?),
        StoreUrl::Postgres(url) => as_both(url.open(settings).await?),
        StoreUrl::Memory => as_both(MemoryStore::default()),
    })
}

/// Opens the settings' store for its permits.
pub async fn open_permits(settings: &Settings) -> anyhow::Result<Arc<dyn Permits>> {
    require_persistent(&settings.store)?;
    Ok(match &settings.store {
        StoreUrl::Sqlite(path) => Arc::new(open_sqlite(path, settings)?),
        StoreUrl::Postgres(url) => Arc::new(url.open(settings).await?),
        StoreUrl::Memory => Arc::new(longshore::MemoryPermits::default()),
    })
}

/// One store as two trait objects.
fn as_both(store: impl Store + Ledger) -> StoreAndLedger {
    let store = Arc::new(store);
    (store.clone(), store)
}

fn open_sqlite(path: &Path, settings: &Settings) -> anyhow::Result<SqliteStore> {
    check_file(path, settings)?;
    let cannot = || format!("cannot open the store sqlite:{}", path.display());
    SqliteStore::open(path, sqlite_options(settings)).with_context(cannot)
}

/// Checks that a store's file, if there is one, is not another user's.
fn check_file(path: &Path, settings: &Settings) -> anyhow::Result<()> {
    check_path(path)?;
    let cannot = || format!("cannot open the store sqlite:{}", path.display());
    // Its units decide what is run. A store that the user names may be shared with a group.
    let sharing = if settings.store_named { Sharing::Group } else { Sharing::Private };
    check_database(path, sharing).map_err(|error| untrusted(error, path)).with_context(cannot)
}

fn sqlite_options(settings: &Settings) -> SqliteOptions {
    let migrate = if settings.inspect_only { MigrateOnOpen::Never } else { MigrateOnOpen::Always };
    SqliteOptions {
        synchronous: settings.synchronous,
        effect_timeout: settings.sqlite_effect_timeout,
        migrate,
        ..SqliteOptions::default()
    }
}

fn untrusted(error: PathError, path: &Path) -> anyhow::Error {
    let hint = match &error {
        PathError::WrongOwner { .. } => format!("`--store sqlite:{}` uses it nevertheless", path.display()),
        PathError::Writable { path, mode } if path.is_dir() && mode & 0o1000 != 0 => {
            "keep the store in a folder of your own: mkdir -m 700 FOLDER".to_owned()
        }
        _ => return error.into(),
    };
    hinted(error.into(), hint)
}

/// Checks the path, because SQLite reports every problem as "unable to open database file".
fn check_path(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Err(usage(format!("store sqlite:{} is a directory", path.display())))
            .hint(format!("name a file in it: sqlite:{}", path.join("longshore.db").display()));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        Some(parent) if !parent.is_dir() => {
            let missing = anyhow::anyhow!("directory {} does not exist", parent.display());
            let cannot = format!("cannot open the store sqlite:{}", path.display());
            Err(missing).hint(format!("mkdir -p {}", parent.display())).context(cannot)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_url() {
        let sqlite = |path: &str| StoreUrl::Sqlite(path.into());
        for (text, url) in [
            ("sqlite:a.db", sqlite("a.db")),
            ("sqlite:/var/a.db", sqlite("/var/a.db")),
            ("sqlite:///var/a.db", sqlite("/var/a.db")),
            ("sqlite://a.db", sqlite("a.db")),
            ("memory:", StoreUrl::Memory),
        ] {
            assert_eq!(text.parse::<StoreUrl>().unwrap(), url, "{text}");
        }
    }

    #[test]
    fn a_url_that_names_no_store_is_explained() {
        for (text, words) in [
            ("sqllite:a.db", "did you mean `sqlite:`?"),
            ("postgres:localhost/x", "not postgres://USER"),
            ("postgres://me@localhost:port/x", "invalid value for option `port`"),
            ("sqlite:", "names no file"),
            ("longshore.db", "is not a URL"),
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn an_address_that_is_no_url_is_not_repeated() {
        for text in ["host=db password=s3cret", "host=db password=s3cret:1", "me@s3cret", "me?s3cret:x"] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
            assert_eq!(error.to_string(), "the store is not a URL");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_names_a_store_or_is_named_in_the_error(
            text in r"(sqlite|sqllite|memory|postgres|[a-z]{0,3})?:?/{0,4}\PC{0,6}|\PC*",
        ) {
            match text.parse::<StoreUrl>() {
                Ok(url) => {
                    let again = url.with_password().parse::<StoreUrl>().unwrap();
                    proptest::prop_assert_eq!(again, url);
                }
                Err(error) => {
                    let (error, scheme) = (error.to_string(), text.split(':').next().unwrap());
                    let named = match is_plain_name(scheme) {
                        true => error.contains(scheme) || error.contains("postgres://"),
                        false => error == "the store is not a URL",
                    };
                    proptest::prop_assert!(named, "{:?}: {}", text, error);
                }
            }
        }
    }
}
