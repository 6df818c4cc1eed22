//! A fresh database for a point, on either store.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use bench_queues::ours;
use bench_queues::server::{Server, WAL, open};
use clap::ValueEnum;
use longshore::Store;
use longshore_postgres::Listen;
use tempfile::TempDir;

/// The stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// One file.
    Sqlite,
    /// A private server.
    Postgres,
}

impl StoreKind {
    /// The name in options and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// The product's name, for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// Creates databases of one store.
pub(crate) enum Databases {
    /// Files below a folder.
    Sqlite(PathBuf),
    /// Databases of a private server.
    Postgres(Rc<Server>),
}

impl Databases {
    /// Prepares a store; starts the server if it needs one. With `once` the server does not wait for the disk.
    pub(crate) async fn start(kind: StoreKind, folder: &Path, once: bool) -> Result<Self> {
        Ok(match (kind, once) {
            (StoreKind::Sqlite, _) => Self::Sqlite(folder.to_owned()),
            (StoreKind::Postgres, false) => Self::Postgres(Rc::new(Server::start().await?)),
            (StoreKind::Postgres, true) => Self::Postgres(Rc::new(Server::start_without_fsync().await?)),
        })
    }

    /// Creates an empty database.
    pub(crate) fn fresh(&self) -> Result<Database> {
        Ok(match self {
            Self::Sqlite(folder) => Database::Sqlite(tempfile::tempdir_in(folder)?),
            Self::Postgres(server) => {
                server.checkpoint()?;
                Database::Postgres { url: server.fresh()?, server: Rc::clone(server) }
            }
        })
    }
}

/// A database, removed when it is dropped.
pub(crate) enum Database {
    /// The file's folder.
    Sqlite(TempDir),
    /// A database of the server.
    Postgres { url: String, server: Rc<Server> },
}

impl Database {
    /// Opens it with default options, as users do.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>> {
        let (kind, location) = self.location();
        open_location(kind, &location).await
    }

    /// The arguments with which another process opens it.
    pub(crate) fn location(&self) -> (StoreKind, String) {
        match self {
            Self::Sqlite(folder) => (StoreKind::Sqlite, folder.path().display().to_string()),
            Self::Postgres { url, .. } => (StoreKind::Postgres, url.clone()),
        }
    }

    /// Its size on disk in bytes.
    pub(crate) fn bytes(&self) -> Result<f64> {
        match self {
            Self::Sqlite(folder) => {
                let sizes =
                    std::fs::read_dir(folder.path())?.map(|entry| Ok(entry?.metadata()?.len() as f64));
                sizes.sum()
            }
            Self::Postgres { url, server } => server.ask(url, "SELECT pg_database_size(current_database())"),
        }
    }

    /// The WAL bytes that its server has written; `None` on SQLite, which reuses its WAL.
    pub(crate) fn wal_bytes(&self) -> Result<Option<f64>> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Postgres { url, server } => server.ask(url, WAL).map(Some),
        }
    }

    /// Writes back what filling left, so that measurements start without a backlog.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres { server, .. } => server.checkpoint(),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server and its folder are removed at the end in any case.
        if let Self::Postgres { url, server } = self {
            let _ = server.drop_database(url);
        }
    }
}

/// Opens a database that this or another process created.
pub(crate) async fn open_location(kind: StoreKind, location: &str) -> Result<Arc<dyn Store>> {
    match kind {
        StoreKind::Sqlite => ours::open(Path::new(location)),
        StoreKind::Postgres => open(location, Listen::Auto).await,
    }
}
