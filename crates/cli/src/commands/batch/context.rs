//! From a batch file and the settings to an open store and the rows' database, with every check
//! made before anything is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use longshore::accounts::Ledger;
use longshore::{Batch, BatchId, BatchStatus, Client, ProfileName, Scope, Store};
use longshore_ai::Profile;
use longshore_batch::check::{self, check};
use longshore_batch::definition::Database;
use longshore_batch::file::{BatchFile, FileError, GoldenSet, LoadedBatchFile, Overrides};
use longshore_batch::rows::SourceError;
use longshore_batch::{AnswerSamples, Commands, Definition, RowSource, Sources};

use super::seed::{ScratchRows, create};
use super::tenant_profile;
use crate::args::batch::BatchFileArgs;
use crate::commands::{StoreHandles, connect, connect_with_ledger};
use crate::error::{WithHint, hinted};
use crate::settings::Settings;
use crate::store::{self, StoreUrl};

/// A batch file that passed all checks, and its rows.
pub struct CheckedBatch {
    /// The definition.
    pub definition: Definition,
    /// The rows.
    pub source: Arc<dyn RowSource>,
    /// The store of the batch.
    pub url: StoreUrl,
    /// Rows with known answers.
    pub golden_set: Option<GoldenSet>,
    /// The tenant's profiles that the batch names, if their store could be read.
    pub profiles: BTreeMap<ProfileName, Profile>,
    sources: Arc<Sources>,
    /// The batch's commands, started by the check.
    pub commands: Arc<Commands>,
    /// The temporary rows of a dry run; removed on drop.
    _scratch: Option<ScratchRows>,
}

/// Why a batch file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPurpose {
    /// To run it: a missing database is created if the file says how.
    Run,
    /// To show what would be done: files are created in a temporary directory only.
    DryRun,
}

/// An open store with what is needed to run batches in it.
pub struct BatchContext {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The store's ledger.
    pub ledger: Arc<dyn Ledger>,
    /// A client with the settings' scope.
    pub client: Client,
    /// The databases of batches.
    pub sources: Arc<Sources>,
    /// The commands of batches.
    pub commands: Arc<Commands>,
    /// Answers of the batches that run here.
    pub samples: Arc<AnswerSamples>,
    /// Where the store is.
    pub url: StoreUrl,
}

impl CheckedBatch {
    /// Reads a batch file and checks it against its database. If the database does not exist and
    /// the file says how, it is created first.
    pub async fn read(
        file: &BatchFileArgs,
        purpose: ReadPurpose,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let overrides = Overrides {
            tenant: settings.tenant.clone(),
            params: file.param.clone(),
            workers: file.workers,
            limit: file.limit,
            mode: file.mode,
            allow_duplicates: file.allow_duplicates,
            ..Overrides::default()
        };
        Self::read_with(&file.path, &overrides, purpose, settings).await
    }

    /// [`Self::read`] with these overrides.
    pub async fn read_with(
        path: &Path,
        overrides: &Overrides,
        purpose: ReadPurpose,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let mut loaded = BatchFile::load(path, overrides).map_err(file_error)?;
        #[cfg(not(feature = "standard"))]
        if loaded.definition.mail().is_some() {
            crate::mail::sealer(settings).await?;
        }
        let url = choose_store(&mut loaded.definition, settings);
        let scratch = match purpose {
            ReadPurpose::Run => create(&loaded, &url, settings).map(|()| None),
            ReadPurpose::DryRun => ScratchRows::make(&loaded, &url, settings),
        }?;
        let sources = match &scratch {
            None => sources(&url),
            Some(scratch) => scratch.sources(&loaded.definition.database, &url)?,
        };
        let source = sources.resolve(&loaded.definition.database);
        let source = source.map_err(|error| file_error(source_error(&loaded, &error)))?;
        let checked = check(&loaded.definition, &loaded.source_map, &*source).await.map_err(file_error)?;
        for warning in checked.warnings {
            settings.output.note(format!("warning: {warning}"));
        }
        check::unique_keys(&loaded.definition, &loaded.source_map, &*source).await.map_err(file_error)?;
        let profiles = tenant_profile::read(&loaded, &url, settings).await?;
        let (definition, golden_set, commands) = (loaded.definition, loaded.golden_set, commands(settings));
        check::commands(&definition, &loaded.source_map, &commands).await.map_err(file_error)?;
        Ok(Self { definition, source, url, golden_set, profiles, sources, commands, _scratch: scratch })
    }

    /// Opens the store.
    pub async fn open(&self, settings: &Settings) -> anyhow::Result<BatchContext> {
        let (store, ledger) = store::open_with_ledger_at(&self.url, settings).await?;
        let scope = Scope::Tenant(self.definition.tenant.clone());
        let client = Client::scoped(Arc::clone(&store), scope).with_retry_timeout(settings.patience);
        let (sources, commands) = (Arc::clone(&self.sources), Arc::clone(&self.commands));
        let samples = Arc::default();
        Ok(BatchContext { store, ledger, client, sources, commands, samples, url: self.url.clone() })
    }
}

impl BatchContext {
    /// Opens the settings' store, which must exist: a new one would have no batches.
    pub async fn existing(settings: &Settings) -> anyhow::Result<Self> {
        require_store(&settings.store)?;
        let StoreHandles { store, ledger, client } = connect_with_ledger(settings).await?;
        let (url, commands) = (settings.store.clone(), commands(settings));
        let samples = Arc::default();
        Ok(Self { store, ledger, client, sources: sources(&url), commands, samples, url })
    }

    /// All batches with one of these statuses.
    pub async fn batches(&self, statuses: &[BatchStatus]) -> anyhow::Result<Vec<Batch>> {
        let (mut found, scope) = (Vec::new(), self.client.scope());
        for status in statuses {
            let mut after = None;
            loop {
                let page = self.store.batches(scope, Some(*status), after.as_deref(), 1_000).await?;
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

/// Opens the settings' store for a command about batch `name`. The store must exist: a new one
/// would not have that batch.
#[cfg(feature = "standard")]
pub async fn connect_to_batch(
    name: &BatchId,
    settings: &Settings,
) -> anyhow::Result<(Arc<dyn Store>, Client)> {
    if settings.server.is_none() {
        require_store(&settings.store).with_context(|| format!("there is no batch `{name}`"))?;
    }
    connect(settings).await
}

/// Like [`connect_to_batch`], with the ledger.
#[cfg(feature = "standard")]
pub async fn connect_to_batch_with_ledger(
    name: &BatchId,
    settings: &Settings,
) -> anyhow::Result<StoreHandles> {
    require_store(&settings.store).with_context(|| format!("there is no batch `{name}`"))?;
    connect_with_ledger(settings).await
}

fn require_store(url: &StoreUrl) -> anyhow::Result<()> {
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
    Arc::new(Commands::with_env(&settings.worker.env))
}

/// The databases of batches in the store at `url`.
pub fn sources(url: &StoreUrl) -> Arc<Sources> {
    Arc::new(build_sources(url))
}

/// [`sources`] before they are shared.
pub fn build_sources(url: &StoreUrl) -> Sources {
    let own = match url {
        StoreUrl::Sqlite(_) => Some(url.to_string()),
        StoreUrl::Postgres(url) => Some(url.with_password().to_owned()),
        StoreUrl::Memory => None,
    };
    Sources::new(own, |name| std::env::var(name).ok())
}

/// Chooses the batch's store: the named store, or else the rows' own database if that is a file. If
/// both are the same database, the definition says so: then POST commits in the transaction that
/// finishes the row.
fn choose_store(definition: &mut Definition, settings: &Settings) -> StoreUrl {
    let Database::Url(url) = &definition.database else { return settings.store.clone() };
    let shared = match (url.parse(), &settings.store) {
        (Ok(StoreUrl::Sqlite(rows)), _) if !settings.store_named => StoreUrl::Sqlite(rows),
        (Ok(StoreUrl::Sqlite(rows)), StoreUrl::Sqlite(store)) if same_file(&rows, store) => {
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

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new(".")).canonicalize().ok()?;
        let whole = dir.join(path.file_name()?);
        Some(whole.canonicalize().unwrap_or(whole))
    };
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// The error for a rows' database that cannot be opened, with its line in the file.
fn source_error(loaded: &LoadedBatchFile, error: &SourceError) -> FileError {
    let error = match loaded.source_map.find("database") {
        Some(location) => location.error(format!("`database`: {error}")),
        None => FileError::new(&loaded.definition.source, error.to_string()),
    };
    error.hint("check `database`; it may be left out if the rows are in the store's own database")
}

/// A batch file's error with its hint.
pub fn file_error(error: FileError) -> anyhow::Error {
    match error.hint.clone() {
        Some(hint) => hinted(error.into(), hint),
        None => error.into(),
    }
}
