//! The batch file, `batch.toml`: from what is written to a [`Definition`].
//!
//! Reads the file and those it names, fills in defaults, and refuses what cannot be meant: one
//! mistake at a time, with file, line and a hint. Asks no database: that is [`crate::check`]'s
//! part, for which [`Places`] remembers where each text was written.

mod action;
mod ai;
mod candidates;
mod command;
mod database;
mod error;
mod mail;
mod places;
mod policy;
mod post;
mod pre;
mod prices;
mod profile;
mod section;
pub mod span;
mod statements;
mod text;

use std::path::{Path, PathBuf};

use longshore::{Clock, Kind, SystemClock, TenantId, Timestamp};
use toml::de::DeTable;

pub use error::{FileError, did_you_mean};
pub use mail::zone_hint;
pub use places::{Place, Places};
pub use text::MAX_FILE;

use crate::definition::{Definition, MailMode, Workers};
use section::{Field, Section};

/// The name looked for in a folder.
const FILE: &str = "batch.toml";

const KEYS: [&str; 17] = [
    "type",
    "tenant",
    "database",
    "seed",
    "workers",
    "on_lost",
    "deadline",
    "candidates",
    "pre",
    "ai",
    "mail",
    "profiles",
    "post",
    "retry",
    "failures",
    "completion",
    "alerts",
];

/// What the command line says; it wins over the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// Whose batch it is.
    pub tenant: Option<TenantId>,
    /// What sort of batch.
    pub kind: Option<String>,
    /// Values of the candidates' parameters, as they were typed. A value is a whole number, else a
    /// number, else text; where the file's default is text, text.
    pub params: Vec<(String, String)>,
    /// How many rows at once.
    pub workers: Option<Workers>,
    /// At most so many rows.
    pub limit: Option<u64>,
    /// How often rows are written to.
    pub mode: Option<MailMode>,
    /// Rows may be taken that another batch has taken.
    pub allow_duplicates: bool,
    /// When the batch starts: a deadline counts from here. `None`: now.
    pub now: Option<Timestamp>,
}

/// A batch file that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What is to be done.
    pub definition: Definition,
    /// SQL that creates a SQLite database that is not there yet.
    pub seed: Option<PathBuf>,
    /// The folder of the file.
    pub dir: PathBuf,
    /// Where things were written.
    pub places: Places,
}

/// A batch file's text, and what it is called.
#[derive(Debug)]
pub struct BatchFile {
    /// As it was named by whoever started this, for messages.
    shown: String,
    /// Its folder, absolute.
    dir: PathBuf,
    /// The same by the way that it was named, which may lead elsewhere after a deployment.
    near: PathBuf,
    /// Its path, absolute.
    path: String,
    text: String,
}

impl BatchFile {
    /// Reads the batch file at `path`: the file, or the folder with a `batch.toml` in it.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Loaded, FileError> {
        Self::open(path)?.read(overrides)
    }

    fn open(path: &Path) -> Result<Self, FileError> {
        let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let shown = file.display().to_string();
        if path.is_dir() && !file.exists() {
            let message = format!("there is no {FILE} in this folder");
            return Err(FileError::new(path.display().to_string(), message));
        }
        let text = text::read(&file, &shown)?;
        let cannot = |error| FileError::new(&shown, format!("the file cannot be read: {error}"));
        // The folder's and not the file's own: what lies beside a link is meant, not what lies
        // beside its target.
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let dir = folder.canonicalize().map_err(cannot)?;
        let near = std::path::absolute(folder).map_err(cannot)?;
        let full = dir.join(file.file_name().unwrap_or_default());
        let not_text = || FileError::new(&shown, "the path of the file is not valid UTF-8");
        let path = full.to_str().ok_or_else(not_text)?.to_owned();
        Ok(Self { shown, dir, near, path, text })
    }

    fn read(&self, overrides: &Overrides) -> Result<Loaded, FileError> {
        if self.text.trim().is_empty() {
            return Err(FileError::new(&self.shown, "the file is empty")
                .hint("it needs `type` and the sections [candidates], [pre] and [ai]"));
        }
        let table = DeTable::parse(&self.text).map_err(|error| self.syntax(&error))?;
        let root = Section::root(self, table.get_ref(), &KEYS)?;
        let mut places = Places::default();
        let definition = self.definition(&root, overrides, &mut places)?;
        let seed = database::seed(&root, &definition.database)?;
        Ok(Loaded { definition, seed, dir: self.dir.clone(), places })
    }

    fn definition(
        &self,
        root: &Section<'_>,
        overrides: &Overrides,
        places: &mut Places,
    ) -> Result<Definition, FileError> {
        let kind = kind(root, overrides)?;
        let now = overrides.now.unwrap_or_else(|| SystemClock.now());
        let deadline = root.field("deadline").map(|field| field.span()).transpose()?;
        let mail = mail::read(root, overrides, now, places)?;
        Ok(Definition {
            version: 1,
            source: self.path.clone(),
            tenant: tenant(root, overrides)?,
            database: database::read(root, places)?,
            workers: policy::workers(root, overrides)?,
            candidates: candidates::read(root, &kind, overrides, mail.as_ref(), places)?,
            pre: pre::read(root, places)?,
            ai: match &mail {
                Some(_) => mail::nobody(root)?,
                None => ai::read(root, places)?,
            },
            mail,
            post: post::read(root, places)?,
            retry: policy::retry(root)?,
            on_lost: policy::on_lost(root)?,
            deadline: deadline.map(|length| now + length),
            threshold: policy::threshold(root)?,
            completion: action::completion(root, places)?,
            alerts: action::alerts(root, places)?,
            kind,
        })
    }

    fn syntax(&self, error: &toml::de::Error) -> FileError {
        let at = error.span().map_or(0, |span| span.start);
        FileError::new(&self.shown, error.message().trim()).at(self.line(at))
    }

    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        crate::sql::lines_before(&self.text, at) + 1
    }
}

fn kind(root: &Section<'_>, overrides: &Overrides) -> Result<String, FileError> {
    let field = root.need("type")?;
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

/// A text of the definition, and where it was written.
#[derive(Debug, Clone)]
struct Written {
    text: String,
    place: Place,
    /// Whether it has a file of its own.
    in_file: bool,
}

impl Written {
    /// The text of a key, written there.
    fn here(field: &Field<'_>) -> Result<Self, FileError> {
        let text = field.text()?.to_owned();
        Ok(Self { text, place: field.text_place(), in_file: false })
    }

    /// The text of the file that a key names.
    fn file(field: &Field<'_>) -> Result<Self, FileError> {
        let path = beside(field)?;
        let shown = Path::new(&field.file.shown).with_file_name(field.text()?);
        let shown = shown.display().to_string();
        let text = text::read(&path, &shown).map_err(|error| match error.line {
            Some(_) => error,
            None => field.error(format!("`{}`: {shown}: {}", field.name, error.message)),
        })?;
        if text.trim().is_empty() {
            return Err(FileError::new(shown, "the file is empty"));
        }
        Ok(Self { text, place: Place { file: shown, line: 1 }, in_file: true })
    }

    /// The text of `key`, or of the file that `key_file` names.
    fn either(section: &Section<'_>, key: &str, key_file: &str) -> Result<Option<Self>, FileError> {
        match section.one_of(&[key, key_file])? {
            Some((0, field)) => Self::here(&field).map(Some),
            Some((_, field)) => Self::file(&field).map(Some),
            None => Ok(None),
        }
    }
}

/// A path that is meant from the batch file's folder.
fn beside(field: &Field<'_>) -> Result<PathBuf, FileError> {
    Ok(field.file.dir.join(field.text()?))
}
