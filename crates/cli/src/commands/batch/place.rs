//! Where a batch is kept and where its rows are: from a batch file and the settings to an open
//! store, with every check made before anything is touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use longshore::ledger::Ledger;
use longshore::{Batch, BatchId, BatchStatus, Client, Scope, Store};
use longshore_batch::check::{self, check};
use longshore_batch::definition::Database;
use longshore_batch::file::{BatchFile, FileError, Loaded, Overrides};
use longshore_batch::rows::SourceError;
use longshore_batch::{Commands, Definition, RowSource, Sources};

use super::seed::{Scratch, create};
use crate::args::batch::File;
use crate::commands::{Connected, connect, connect_both};
use crate::error::{WithHint, hinted};
use crate::settings::Settings;
use crate::store::{self, StoreUrl};

/// A batch file that was found to be good, and the rows it is about.
pub struct Checked {
    /// What is to be done.
    pub definition: Definition,
    /// The rows.
    pub source: Arc<dyn RowSource>,
    /// Where the batch is to be kept.
    pub url: StoreUrl,
    sources: Arc<Sources>,
    /// Its commands, which were started to see whether they work.
    pub commands: Arc<Commands>,
    /// Where a dry run has its rows, if it had to make them: gone with this.
    _scratch: Option<Scratch>,
}

/// What a batch file is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To run it: what is not there is created if the file says how.
    Run,
    /// To show what would be done: nothing is created but in a temporary directory.
    DryRun,
}

/// A store, and what is needed to work in it.
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same, as the ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Sees what the settings allow.
    pub client: Client,
    /// The databases of batches.
    pub sources: Arc<Sources>,
    /// The commands of batches.
    pub commands: Arc<Commands>,
    /// Where the store is.
    pub url: StoreUrl,
}

impl Checked {
    /// Reads a batch file and checks it against its database, which is created first if it is not
    /// there and the file says how.
    pub async fn read(file: &File, purpose: Purpose, settings: &Settings) -> anyhow::Result<Self> {
        let overrides = Overrides {
            tenant: settings.tenant.clone(),
            params: file.param.clone(),
            workers: file.workers,
            limit: file.limit,
            mode: file.mode,
            allow_duplicates: file.allow_duplicates,
            ..Overrides::default()
        };
        let mut loaded = BatchFile::load(&file.path, &overrides).map_err(explain)?;
        #[cfg(not(feature = "standard"))]
        if loaded.definition.mail.is_some() {
            crate::mail::sealer(settings).await?;
        }
        let url = locate(&mut loaded.definition, settings);
        let scratch = match purpose {
            Purpose::Run => create(&loaded, &url, settings).map(|()| None),
            Purpose::DryRun => Scratch::make(&loaded, &url, settings),
        }?;
        let sources = match &scratch {
            None => sources(&url),
            Some(scratch) => scratch.sources(&loaded.definition.database, &url)?,
        };
        let source = sources.resolve(&loaded.definition.database);
        let source = source.map_err(|error| explain(unreachable(&loaded, &error)))?;
        let checked = check(&loaded.definition, &loaded.places, &*source).await.map_err(explain)?;
        for warning in checked.warnings {
            settings.output.note(format!("warning: {warning}"));
        }
        let (definition, commands) = (loaded.definition, commands(settings));
        check::commands(&definition, &loaded.places, &commands).await.map_err(explain)?;
        Ok(Self { definition, source, url, sources, commands, _scratch: scratch })
    }

    /// Opens the store.
    pub async fn open(&self, settings: &Settings) -> anyhow::Result<Place> {
        let (store, ledger) = store::open_both_at(&self.url, settings).await?;
        let scope = Scope::Tenant(self.definition.tenant.clone());
        let client = Client::scoped(Arc::clone(&store), scope).with_patience(settings.patience);
        let (sources, commands) = (Arc::clone(&self.sources), Arc::clone(&self.commands));
        Ok(Place { store, ledger, client, sources, commands, url: self.url.clone() })
    }
}

impl Place {
    /// The store that the settings name, whatever batches it has. It is not created: a new one
    /// would have none.
    pub async fn existing(settings: &Settings) -> anyhow::Result<Self> {
        must_exist(&settings.store)?;
        let Connected { store, ledger, client } = connect_both(settings).await?;
        let (url, commands) = (settings.store.clone(), commands(settings));
        Ok(Self { store, ledger, client, sources: sources(&url), commands, url })
    }

    /// All batches in one of these states.
    pub async fn batches(&self, statuses: &[BatchStatus]) -> anyhow::Result<Vec<Batch>> {
        let (mut found, scope) = (Vec::new(), self.client.scope());
        for status in statuses {
            let mut after = None;
            loop {
                let page =
                    self.store.batches(scope, Some(*status), after.as_deref(), 1_000).await?;
                found.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }
}

/// The store that the settings name, for what is asked of batch `name`. It is not created: a new
/// one would not have that batch.
#[cfg(feature = "standard")]
pub async fn connect_to(
    name: &BatchId,
    settings: &Settings,
) -> anyhow::Result<(Arc<dyn Store>, Client)> {
    if settings.server.is_none() {
        must_exist(&settings.store).with_context(|| format!("there is no batch `{name}`"))?;
    }
    connect(settings).await
}

/// The same, with the ledger.
#[cfg(feature = "standard")]
pub async fn connect_to_both(name: &BatchId, settings: &Settings) -> anyhow::Result<Connected> {
    must_exist(&settings.store).with_context(|| format!("there is no batch `{name}`"))?;
    connect_both(settings).await
}

fn must_exist(url: &StoreUrl) -> anyhow::Result<()> {
    match url {
        StoreUrl::Sqlite(path) if !path.exists() => Err(anyhow!("there is no store {url}")).hint(
            "name the store with --store sqlite:PATH; `batch run` keeps a batch in its rows' \
                 database unless it is told otherwise",
        ),
        _ => Ok(()),
    }
}

/// The commands of batches; none is started yet.
pub fn commands(settings: &Settings) -> Arc<Commands> {
    Arc::new(Commands::inheriting(&settings.worker.env))
}

/// The databases of batches that are kept in the store at `url`.
pub fn sources(url: &StoreUrl) -> Arc<Sources> {
    Arc::new(new_sources(url))
}

/// The same, before they are shared.
pub fn new_sources(url: &StoreUrl) -> Sources {
    let own = match url {
        StoreUrl::Sqlite(_) => Some(url.to_string()),
        StoreUrl::Postgres(url) => Some(url.with_password().to_owned()),
        StoreUrl::Memory => None,
    };
    Sources::new(own, |name| std::env::var(name).ok())
}

/// Where the batch is kept: in the named store, or else beside its rows if those are in a file.
/// Where both are the same database, the definition says so: then POST commits with a row's end.
fn locate(definition: &mut Definition, settings: &Settings) -> StoreUrl {
    let Database::Url(url) = &definition.database else { return settings.store.clone() };
    let shared = match (url.parse(), &settings.store) {
        (Ok(StoreUrl::Sqlite(rows)), _) if !settings.store_named => StoreUrl::Sqlite(rows),
        (Ok(StoreUrl::Sqlite(rows)), StoreUrl::Sqlite(store)) if is_same(&rows, store) => {
            StoreUrl::Sqlite(rows)
        }
        (Ok(StoreUrl::Postgres(rows)), StoreUrl::Postgres(store)) if rows.is_same(store) => {
            settings.store.clone()
        }
        _ => return settings.store.clone(),
    };
    definition.database = Database::Store;
    shared
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new(".")).canonicalize().ok()?;
        let whole = dir.join(path.file_name()?);
        Some(whole.canonicalize().unwrap_or(whole))
    };
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// What is wrong with the rows' database, and the line that names it.
fn unreachable(loaded: &Loaded, error: &SourceError) -> FileError {
    let error = match loaded.places.find("database") {
        Some(place) => place.error(format!("`database`: {error}")),
        None => FileError::new(&loaded.definition.source, error.to_string()),
    };
    error.hint("check `database`; a batch whose rows are in the store's own database needs none")
}

/// What is wrong with a batch file, with the hint it has.
pub fn explain(error: FileError) -> anyhow::Error {
    match error.hint.clone() {
        Some(hint) => hinted(error.into(), hint),
        None => error.into(),
    }
}
