//! Reads the batch file, `batch.toml`, into a [`Definition`].
//!
//! Reads the file and the files it names, fills in defaults, and rejects invalid settings: one
//! mistake at a time, with file, line and a hint. Does not access a database: [`crate::check`]
//! does, and [`SourceMap`] has the lines of the texts for its messages.

mod action;
mod ai;
mod candidates;
mod command;
mod database;
mod error;
mod expect;
mod mail;
mod policy;
mod post;
mod pre;
mod profile;
mod section;
mod source_map;
mod statements;
mod steps;
mod text;

use std::path::{Path, PathBuf};

use longshore::{Clock, Kind, SystemClock, TenantId, Timestamp};
use toml::de::DeTable;

pub use error::{FileError, toml_key};
pub use expect::{ExpectedRow, GoldenSet};
pub use mail::zone_hint;
pub use source_map::{SourceLocation, SourceMap};
pub use text::MAX_FILE;

use crate::definition::{Definition, MailMode, RowConcurrency, RowStep};
use section::{Field, Section};

/// The file name looked for in a folder.
const FILE_NAME: &str = "batch.toml";

const KEYS: [&str; 20] = [
    "type",
    "tenant",
    "database",
    "seed",
    "workers",
    "on_lost",
    "deadline",
    "candidates",
    "pre",
    "step",
    "ai",
    "mail",
    "profiles",
    "post",
    "retry",
    "failures",
    "completion",
    "alerts",
    "check",
    "expect",
];

/// Settings from the command line; they override the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// The owner.
    pub tenant: Option<TenantId>,
    /// The batch's type.
    pub kind: Option<String>,
    /// Values of the candidates' parameters, as typed. A value is an integer, else a number, else
    /// text; if the file's default is text, it is text.
    pub params: Vec<(String, String)>,
    /// How many rows run at once.
    pub workers: Option<RowConcurrency>,
    /// The maximum number of rows.
    pub limit: Option<u64>,
    /// How often a row gets a message.
    pub mode: Option<MailMode>,
    /// Whether rows may run that another batch has.
    pub allow_duplicates: bool,
    /// When the batch starts, from which its deadline counts. `None`: now.
    pub now: Option<Timestamp>,
}

/// A batch file and its definition.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedBatchFile {
    /// The definition.
    pub definition: Definition,
    /// A SQL script that creates the SQLite database if it is missing.
    pub seed: Option<PathBuf>,
    /// The folder of the file.
    pub dir: PathBuf,
    /// Rows with known answers, which `batch run --check` scores.
    pub golden_set: Option<GoldenSet>,
    /// The lines where the definition's texts were written.
    pub source_map: SourceMap,
}

/// A batch file's text and path.
#[derive(Debug)]
pub struct BatchFile {
    /// The path as the user named it, for messages.
    display_path: String,
    /// Its folder, absolute and without symbolic links.
    dir: PathBuf,
    /// Its folder, absolute, with the symbolic links that the user named, which may point elsewhere
    /// after a deployment.
    unresolved_dir: PathBuf,
    /// Its absolute path.
    path: String,
    text: String,
}

impl BatchFile {
    /// Reads the batch file at `path`: the file, or the folder with a `batch.toml` in it.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<LoadedBatchFile, FileError> {
        Self::open(path)?.read(overrides)
    }

    fn open(path: &Path) -> Result<Self, FileError> {
        let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        let display_path = file.display().to_string();
        if path.is_dir() && !file.exists() {
            let message = format!("there is no {FILE_NAME} in this folder");
            return Err(FileError::new(path.display().to_string(), message));
        }
        let text = text::read(&file, &display_path)?;
        let cannot = |error| FileError::new(&display_path, format!("the file cannot be read: {error}"));
        // Resolve the folder and not the file: files beside a symbolic link are meant, not those
        // beside its target.
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let dir = folder.canonicalize().map_err(cannot)?;
        let unresolved_dir = std::path::absolute(folder).map_err(cannot)?;
        let full = dir.join(file.file_name().unwrap_or_default());
        let not_text = || FileError::new(&display_path, "the path of the file is not valid UTF-8");
        let path = full.to_str().ok_or_else(not_text)?.to_owned();
        Ok(Self { display_path, dir, unresolved_dir, path, text })
    }

    fn read(&self, overrides: &Overrides) -> Result<LoadedBatchFile, FileError> {
        if self.text.trim().is_empty() {
            return Err(FileError::new(&self.display_path, "the file is empty")
                .hint("it needs `type` and the sections [candidates], [pre] and [ai]"));
        }
        let table = DeTable::parse(&self.text).map_err(|error| self.syntax(&error))?;
        let root = Section::root(self, table.get_ref(), &KEYS)?;
        let mut source_map = SourceMap::default();
        let definition = self.definition(&root, overrides, &mut source_map)?;
        let seed = database::seed(&root, &definition.database)?;
        let golden_set = expect::read(&root)?;
        Ok(LoadedBatchFile { definition, seed, dir: self.dir.clone(), golden_set, source_map })
    }

    fn definition(
        &self,
        root: &Section<'_>,
        overrides: &Overrides,
        source_map: &mut SourceMap,
    ) -> Result<Definition, FileError> {
        let kind = kind(root, overrides)?;
        let now = overrides.now.unwrap_or_else(|| SystemClock.now());
        let deadline = root.field("deadline").map(|field| field.positive_duration()).transpose()?;
        let mail = mail::read(root, overrides, now, source_map)?;
        let tenant = tenant(root, overrides)?;
        Ok(Definition {
            version: 1,
            source: self.path.clone(),
            tenant: tenant.clone(),
            database: database::read(root, &tenant, source_map)?,
            fingerprint: None,
            workers: policy::workers(root, overrides)?,
            candidates: candidates::read(root, &kind, overrides, mail.as_ref(), source_map)?,
            pre: pre::read(root, source_map)?,
            steps: steps::read(root, &policy::retry(root)?, source_map)?,
            step: match mail {
                Some(mail) => RowStep::Mail(mail),
                None => RowStep::Ai(ai::read(root, source_map)?),
            },
            post: post::read(root, source_map)?,
            retry: policy::retry(root)?,
            on_lost: policy::on_lost(root)?,
            deadline: deadline.map(|length| now + length),
            threshold: policy::threshold(root)?,
            completion: action::completion(root, source_map)?,
            alerts: action::alerts(root, source_map)?,
            trial: None,
            revision: 1,
            revisions: Vec::new(),
            kind,
        })
    }

    fn syntax(&self, error: &toml::de::Error) -> FileError {
        let at = error.span().map_or(0, |span| span.start);
        FileError::new(&self.display_path, error.message().trim()).at(self.line(at))
    }

    /// The line of a byte offset, from 1.
    fn line(&self, at: usize) -> usize {
        crate::sql::lines_before(&self.text, at) + 1
    }
}

fn kind(root: &Section<'_>, overrides: &Overrides) -> Result<String, FileError> {
    let field = root.require("type")?;
    let written = field.text()?;
    let kind = overrides.kind.as_deref().unwrap_or(written);
    Kind::new(kind).map_err(|error| field.error(format!("`type`: {error}")))?;
    Ok(kind.to_owned())
}

fn tenant(root: &Section<'_>, overrides: &Overrides) -> Result<TenantId, FileError> {
    let written = root
        .field("tenant")
        .map(|field| TenantId::new(field.text()?).map_err(|error| field.error(error.to_string())));
    let written = written.transpose()?;
    Ok(overrides.tenant.clone().or(written).unwrap_or_default())
}

/// A text of the definition and its location.
#[derive(Debug, Clone)]
struct SourceText {
    text: String,
    location: SourceLocation,
    /// Whether it is in a file of its own.
    is_file: bool,
}

impl SourceText {
    /// The text of a key in the batch file.
    fn inline(field: &Field<'_>) -> Result<Self, FileError> {
        let text = field.text()?.to_owned();
        Ok(Self { text, location: field.text_location(), is_file: false })
    }

    /// The text of the file that a key names.
    fn file(field: &Field<'_>) -> Result<Self, FileError> {
        let path = resolve_path(field)?;
        let display_path = Path::new(&field.file.display_path).with_file_name(field.text()?);
        let display_path = display_path.display().to_string();
        let text = text::read(&path, &display_path).map_err(|error| match error.line {
            Some(_) => error,
            None => field.error(format!("`{}`: {display_path}: {}", field.name, error.message)),
        })?;
        if text.trim().is_empty() {
            return Err(FileError::new(display_path, "the file is empty"));
        }
        Ok(Self { text, location: SourceLocation { file: display_path, line: 1 }, is_file: true })
    }

    /// The text of `key`, or of the file that `key_file` names.
    fn inline_or_file(section: &Section<'_>, key: &str, key_file: &str) -> Result<Option<Self>, FileError> {
        match section.exclusive(&[key, key_file])? {
            Some((0, field)) => Self::inline(&field).map(Some),
            Some((_, field)) => Self::file(&field).map(Some),
            None => Ok(None),
        }
    }
}

/// A path relative to the batch file's folder.
fn resolve_path(field: &Field<'_>) -> Result<PathBuf, FileError> {
    Ok(field.file.dir.join(field.text()?))
}
