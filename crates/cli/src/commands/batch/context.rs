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
use longshore_batch::row_enqueuer::FillError;
use longshore_batch::rows::{SourceError, is_same_database, open};
use longshore_batch::{AnswerSamples, Commands, Definition, RowSource, Sources};

use super::seed::{ScratchRows, create};
use super::tenant_profile;
use crate::alert_sinks::AlertSinks;
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
        let url = choose_store(&mut loaded, settings).await?;
        let scratch = match purpose {
            ReadPurpose::Run => create(&loaded, &url, settings).map(|()| None),
            ReadPurpose::DryRun => ScratchRows::make(&loaded, &url, settings),
        }?;
        let sources = match &scratch {
            None => sources(&url, settings)?,
            Some(scratch) => scratch.sources(&loaded.definition.database, &url, settings)?,
        };
        let source = sources.resolve(&loaded.definition.database);
        let source = source.map_err(|error| file_error(open_error(&loaded, &error)))?;
        let checked = check(&loaded.definition, &loaded.source_map, &*source).await.map_err(file_error)?;
        for warning in checked.warnings {
            settings.output.note(format!("warning: {warning}"));
        }
        check::candidate_keys(&loaded.definition, &loaded.source_map, &*source).await.map_err(file_error)?;
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
        let (sources, samples) = (sources(&url, settings)?, Arc::default());
        Ok(Self { store, ledger, client, sources, commands, samples, url })
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
pub fn sources(url: &StoreUrl, settings: &Settings) -> anyhow::Result<Arc<Sources>> {
    build_sources(url, settings).map(Arc::new)
}

/// [`sources`] before they are shared.
pub fn build_sources(url: &StoreUrl, settings: &Settings) -> anyhow::Result<Sources> {
    let own = match url {
        StoreUrl::Sqlite(_) => Some(url.to_string()),
        StoreUrl::Postgres(url) => Some(url.with_password().to_owned()),
        StoreUrl::Memory => None,
    };
    let sources = Sources::new(own, |name| std::env::var(name).ok());
    Ok(sources.with_alert_sink(AlertSinks::open(&settings.alerts)?))
}

/// Chooses the batch's store: the named store, or else the rows' own database if that is a file. If
/// both are the same database, the definition says so: then POST commits in the transaction that
/// finishes the row.
async fn choose_store(loaded: &mut LoadedBatchFile, settings: &Settings) -> anyhow::Result<StoreUrl> {
    let sources = build_sources(&settings.store, settings)?;
    // A variable that is not set is an error of the check, which names its line.
    let rows = sources.url(&loaded.definition.database).ok().and_then(|url| url.parse().ok());
    let shared = match (rows, &settings.store) {
        _ if loaded.definition.database == Database::Store => return Ok(settings.store.clone()),
        (Some(StoreUrl::Sqlite(rows)), _) if !settings.store_named => StoreUrl::Sqlite(rows),
        (Some(StoreUrl::Sqlite(rows)), StoreUrl::Sqlite(store)) if same_file(&rows, store) => {
            StoreUrl::Sqlite(rows)
        }
        (Some(StoreUrl::Postgres(_)), StoreUrl::Postgres(_)) => {
            if !is_stores_database(loaded, &sources).await? {
                return Ok(settings.store.clone());
            }
            settings.store.clone()
        }
        _ => return Ok(settings.store.clone()),
    };
    loaded.definition.database = Database::Store;
    Ok(shared)
}

/// Whether the rows are in the store's own database, whatever the two URLs look like.
async fn is_stores_database(loaded: &LoadedBatchFile, sources: &Sources) -> anyhow::Result<bool> {
    // Not by the sources' own connections, which would raise an alert if a database is unavailable.
    let opened = |database: &Database| open(&sources.url(database)?);
    let rows = opened(&loaded.definition.database);
    let rows = rows.map_err(|error| file_error(open_error(loaded, &error)))?;
    // The rows first: their errors name the line of the batch file.
    rows.fingerprint().await.map_err(|error| file_error(open_error(loaded, &error)))?;
    let store = opened(&Database::Store).context("the store cannot be read")?;
    is_same_database(&*rows, &*store).await.context("the rows and the store cannot be compared")
}

/// An error of filling, with a hint if the rows are in another database now.
pub fn fill_error(batch: &BatchId, error: FillError) -> anyhow::Error {
    match &error {
        FillError::Source(SourceError::WrongDatabase { .. }) => hinted(
            error.into(),
            format!(
                "if the database was moved (restored, upgraded, failed over): longshore batch rebind {batch}"
            ),
        ),
        _ => error.into(),
    }
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
fn open_error(loaded: &LoadedBatchFile, source_error: &SourceError) -> FileError {
    let error = match loaded.source_map.find("database") {
        Some(location) => location.error(format!("`database`: {source_error}")),
        None => FileError::new(&loaded.definition.source, source_error.to_string()),
    };
    let error = error.retryable(source_error.is_retryable());
    error.hint("check `database`; it may be left out if the rows are in the store's own database")
}

/// A batch file's error with its hint.
pub fn file_error(error: FileError) -> anyhow::Error {
    match error.hint.clone() {
        Some(hint) => hinted(error.into(), hint),
        None => error.into(),
    }
}
