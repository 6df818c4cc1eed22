//! Rows that are made from a batch file's seed: for good, or for a dry run only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use longshore_batch::Sources;
use longshore_batch::definition::Database;
use longshore_batch::file::Loaded;
use longshore_batch::rows::{OpenMode, SqliteRows, seed};
use tempfile::TempDir;

use super::place::new_sources;
use crate::settings::Settings;
use crate::store::StoreUrl;

/// The file that is to be created from a seed, and the seed, if the batch file has one.
fn seeded<'a>(loaded: &'a Loaded, url: &StoreUrl) -> Option<(PathBuf, &'a Path)> {
    let rows = match (&loaded.definition.database, url) {
        (Database::Store, url) => url.clone(),
        (Database::Url(url), _) => url.parse().ok()?,
    };
    match (rows, &loaded.seed) {
        (StoreUrl::Sqlite(rows), Some(script)) => Some((rows, script)),
        _ => None,
    }
}

/// Creates the rows' database from the file's seed, if there is one and the database is not there.
pub fn create(loaded: &Loaded, url: &StoreUrl, settings: &Settings) -> anyhow::Result<()> {
    let Some((rows, script)) = seeded(loaded, url) else { return Ok(()) };
    if seed::create(&rows, script).with_context(|| cannot(&rows, script))? {
        settings.output.note(format!("created {} from {}", rows.display(), script.display()));
    }
    Ok(())
}

fn cannot(rows: &Path, script: &Path) -> String {
    format!("cannot create {} from {}", rows.display(), script.display())
}

/// Rows made for a dry run, because the database is not there yet.
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes them, if the file says how and they are missing.
    pub fn make(
        loaded: &Loaded,
        url: &StoreUrl,
        settings: &Settings,
    ) -> anyhow::Result<Option<Self>> {
        let missing = seeded(loaded, url).filter(|(rows, _)| !rows.exists());
        let Some((rows, script)) = missing else { return Ok(None) };
        let scratch = Self(tempfile::tempdir().context("cannot make a temporary directory")?);
        // The name of a file that is gone in a moment would help nobody.
        seed::create(&scratch.rows(), script).with_context(|| cannot(&rows, script))?;
        settings.output.note(format!(
            "{} is not there yet: looking at rows from {} in a temporary directory",
            rows.display(),
            script.display()
        ));
        Ok(Some(scratch))
    }

    fn rows(&self) -> PathBuf {
        self.0.path().join("rows.db")
    }

    /// The databases of batches, with these rows in the place of `database`.
    pub fn sources(&self, database: &Database, url: &StoreUrl) -> anyhow::Result<Arc<Sources>> {
        let rows = SqliteRows::open(&self.rows(), OpenMode::Read)?;
        Ok(Arc::new(new_sources(url).with(database.clone(), Arc::new(rows))))
    }
}
