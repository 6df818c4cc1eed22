//! Where a batch is kept and where its rows are: from a batch file and the settings to an open
//! store, with every check made before anything is touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use longshore::{Client, Scope, Store};
use longshore_batch::check::check;
use longshore_batch::definition::Database;
use longshore_batch::file::{BatchFile, FileError, Loaded, Overrides};
use longshore_batch::rows::seed;
use longshore_batch::{Definition, RowSource, Sources};

use crate::args::batch::File;
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
}

/// A store, and what is needed to work in it.
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Sees what the settings allow.
    pub client: Client,
    /// The databases of batches.
    pub sources: Arc<Sources>,
    /// Where the store is.
    pub url: StoreUrl,
}

impl Checked {
    /// Reads a batch file and checks it against its database, which is created first if it is not
    /// there and the file says how.
    pub async fn read(file: &File, settings: &Settings) -> anyhow::Result<Self> {
        let overrides = Overrides {
            tenant: settings.tenant.clone(),
            params: file.param.clone(),
            workers: file.workers,
            limit: file.limit,
            allow_duplicates: file.allow_duplicates,
            ..Overrides::default()
        };
        let mut loaded = BatchFile::load(&file.path, &overrides).map_err(explain)?;
        let url = locate(&mut loaded.definition, settings);
        create(&loaded, &url, settings)?;
        let sources = sources(&url);
        let source = sources.resolve(&loaded.definition.database);
        let source = source.with_context(|| format!("in {}", loaded.definition.source)).hint(
            "check `database`; a batch whose rows are in the store's own database needs none",
        )?;
        let checked = check(&loaded.definition, &loaded.places, &*source).await.map_err(explain)?;
        for warning in checked.warnings {
            settings.output.note(format!("warning: {warning}"));
        }
        Ok(Self { definition: loaded.definition, source, url, sources })
    }

    /// Opens the store.
    pub fn open(&self, settings: &Settings) -> anyhow::Result<Place> {
        let store = store::open_at(&self.url, settings)?;
        let scope = Scope::Tenant(self.definition.tenant.clone());
        let client = Client::scoped(Arc::clone(&store), scope).with_patience(settings.patience);
        Ok(Place { store, client, sources: Arc::clone(&self.sources), url: self.url.clone() })
    }
}

impl Place {
    /// The store that the settings name, whatever batches it has.
    pub fn configured(settings: &Settings) -> anyhow::Result<Self> {
        let (store, client) = super::super::connect(settings)?;
        let url = settings.store.clone();
        Ok(Self { store, client, sources: sources(&url), url })
    }
}

/// The databases of batches that are kept in the store at `url`.
pub fn sources(url: &StoreUrl) -> Arc<Sources> {
    let own = match url {
        StoreUrl::Sqlite(_) => Some(url.to_string()),
        StoreUrl::Memory => None,
    };
    Arc::new(Sources::new(own, |name| std::env::var(name).ok()))
}

/// Where the batch is kept: in the named store, or else beside its rows. Where both are the same
/// file, the definition says so: then POST commits with a row's end.
fn locate(definition: &mut Definition, settings: &Settings) -> StoreUrl {
    let Database::Url(url) = &definition.database else { return settings.store.clone() };
    let Ok(StoreUrl::Sqlite(rows)) = url.parse() else { return settings.store.clone() };
    let shared = match &settings.store {
        _ if !settings.store_named => true,
        StoreUrl::Sqlite(store) => is_same(&rows, store),
        StoreUrl::Memory => false,
    };
    if !shared {
        return settings.store.clone();
    }
    definition.database = Database::Store;
    StoreUrl::Sqlite(rows)
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

/// Creates the rows' database from the file's seed, if there is one and the database is not there.
fn create(loaded: &Loaded, url: &StoreUrl, settings: &Settings) -> anyhow::Result<()> {
    let Some(script) = &loaded.seed else { return Ok(()) };
    let rows = match (&loaded.definition.database, url) {
        (Database::Store, StoreUrl::Sqlite(path)) => path.clone(),
        (Database::Url(url), _) => match url.parse() {
            Ok(StoreUrl::Sqlite(path)) => path,
            _ => return Ok(()),
        },
        (Database::Store, StoreUrl::Memory) => return Ok(()),
    };
    let made = seed::create(&rows, script)
        .with_context(|| format!("cannot create {} from {}", rows.display(), script.display()))?;
    if made {
        settings.output.note(format!("created {} from {}", rows.display(), script.display()));
    }
    Ok(())
}

fn explain(error: FileError) -> anyhow::Error {
    match error.hint.clone() {
        Some(hint) => hinted(error.into(), hint),
        None => error.into(),
    }
}
