//! `database` and `seed`: the database with the rows. `{tenant}` in the URL is the batch's tenant.

use std::path::{Path, PathBuf};

use longshore::TenantId;
use longshore::text::is_plain_name;

use crate::definition::Database;
use crate::rows::has_password;

use super::error::FileError;
use super::resolve_path;
use super::section::{Field, Section};
use super::source_map::SourceMap;

const SCHEMES: [&str; 8] = ["sqlite", "postgres", "postgresql", "mysql", "mariadb", "odbc", "env", "file"];

pub(super) fn read(
    root: &Section<'_>,
    tenant: &TenantId,
    source_map: &mut SourceMap,
) -> Result<Database, FileError> {
    let Some(field) = root.field("database") else { return Ok(Database::Store) };
    source_map.put("database", field.location());
    let url = field.text()?.trim().replace("{tenant}", tenant.as_str());
    let url = url.as_str();
    // A message repeats nothing else: the text may contain a password.
    let (scheme, rest) = match url.split_once(':') {
        Some(parts) if is_plain_name(parts.0) => parts,
        None if is_plain_name(url) => {
            let error = field.error(format!("`database`: `{url}` is not a URL"));
            return Err(error.hint(format!("did you mean `sqlite:{url}`?")));
        }
        _ => {
            let error = field.error("`database` is not a URL");
            return Err(error.hint("write sqlite:PATH or postgres://USER:PASSWORD@HOST:5432/DATABASE"));
        }
    };
    match scheme {
        "sqlite" => sqlite(&field, rest),
        "file" if !rest.is_empty() => {
            Ok(Database::Url(format!("file:{}", field.file.dir.join(rest).display())))
        }
        known if SCHEMES.contains(&known) && rest.is_empty() => {
            Err(field.error(format!("`database`: nothing follows `{known}:`")))
        }
        known if SCHEMES.contains(&known) && has_password(url) => Err(field
            .error("`database` contains a password, which would be stored with the batch")
            .hint("put the URL into a variable or a file: `database = \"env:NAME\"` or \"file:PATH\"")),
        known if SCHEMES.contains(&known) => Ok(Database::Url(url.to_owned())),
        other => {
            let error = field.error(format!("`database`: unknown kind of database `{other}:`"));
            Err(error.suggest(other, SCHEMES))
        }
    }
}

/// A SQLite file, relative to the batch file's folder.
fn sqlite(field: &Field<'_>, rest: &str) -> Result<Database, FileError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || path == ":memory:" {
        return Err(field.error("`database` names no file").hint("write sqlite:PATH"));
    }
    Ok(Database::Url(format!("sqlite:{}", field.file.dir.join(path).display())))
}

pub(super) fn seed(root: &Section<'_>, database: &Database) -> Result<Option<PathBuf>, FileError> {
    let Some(field) = root.field("seed") else { return Ok(None) };
    let path = resolve_path(&field)?;
    if !path.is_file() {
        let shown_path = Path::new(field.text()?).display();
        return Err(field.error(format!("`seed`: there is no file {shown_path}")));
    }
    match database {
        Database::Url(url) if !url.starts_with("sqlite:") => Err(field
            .error("`seed` can only create a SQLite database")
            .hint("create the tables with the database's own tools and leave `seed` out")),
        _ => Ok(Some(path)),
    }
}
