//! Creates rows from a batch file's seed: permanently, or for a dry run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use longshore_batch::Sources;
use longshore_batch::definition::Database;
use longshore_batch::file::LoadedBatchFile;
use longshore_batch::rows::{DatabaseRows, OpenMode, seed};
use tempfile::TempDir;

use super::context::build_sources;
use crate::settings::Settings;
use crate::store::StoreUrl;

/// The database file to create from a seed, and the seed, if the batch file has one.
fn seeded<'a>(loaded: &'a LoadedBatchFile, url: &StoreUrl) -> Option<(PathBuf, &'a Path)> {
    let rows = match (&loaded.definition.database, url) {
        (Database::Store, url) => url.clone(),
        (Database::Url(url), _) => url.parse().ok()?,
    };
    match (rows, &loaded.seed) {
        (StoreUrl::Sqlite(rows), Some(script)) => Some((rows, script)),
        _ => None,
    }
}

/// Creates the rows' database from the file's seed, if there is a seed and no database.
pub fn create(loaded: &LoadedBatchFile, url: &StoreUrl, settings: &Settings) -> anyhow::Result<()> {
    let Some((rows, script)) = seeded(loaded, url) else { return Ok(()) };
    if seed::create(&rows, script).with_context(|| cannot(&rows, script))? {
        settings.output.note(format!("created {} from {}", rows.display(), script.display()));
    }
    Ok(())
}

fn cannot(rows: &Path, script: &Path) -> String {
    format!("cannot create {} from {}", rows.display(), script.display())
}

/// Temporary rows of a dry run, if the database does not exist.
pub struct ScratchRows(TempDir);

impl ScratchRows {
    /// Creates them if the file has a seed and the database is missing.
    pub fn make(
        loaded: &LoadedBatchFile,
        url: &StoreUrl,
        settings: &Settings,
    ) -> anyhow::Result<Option<Self>> {
        let missing = seeded(loaded, url).filter(|(rows, _)| !rows.exists());
        let Some((rows, script)) = missing else { return Ok(None) };
        let scratch = Self(tempfile::tempdir().context("cannot make a temporary directory")?);
        // The error names the real database: the temporary file is gone in a moment.
        seed::create(&scratch.rows(), script).with_context(|| cannot(&rows, script))?;
        settings.output.note(format!(
            "{} does not exist yet: using rows from {} in a temporary directory",
            rows.display(),
            script.display()
        ));
        Ok(Some(scratch))
    }

    fn rows(&self) -> PathBuf {
        self.0.path().join("rows.db")
    }

    /// The databases of batches, with these rows instead of `database`.
    pub fn sources(
        &self,
        database: &Database,
        url: &StoreUrl,
        settings: &Settings,
    ) -> anyhow::Result<Arc<Sources>> {
        let rows = DatabaseRows::sqlite(&self.rows(), OpenMode::Read)?;
        Ok(Arc::new(build_sources(url, settings)?.with(database.clone(), Arc::new(rows))))
    }
}
