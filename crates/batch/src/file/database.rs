//! `database` and `seed`: where the rows are.

use std::path::{Path, PathBuf};

use crate::definition::Database;

use super::beside;
use super::error::FileError;
use super::places::Places;
use super::section::{Field, Section};

const SCHEMES: [&str; 7] = ["sqlite", "postgres", "postgresql", "mysql", "mariadb", "odbc", "env"];

pub(super) fn read(root: &Section<'_>, places: &mut Places) -> Result<Database, FileError> {
    let Some(field) = root.field("database") else { return Ok(Database::Store) };
    places.put("database", field.place());
    let url = field.text()?.trim();
    let Some((scheme, rest)) = url.split_once(':') else {
        let error = field.error(format!("`database`: `{url}` is not a URL"));
        return Err(error.hint(format!("did you mean `sqlite:{url}`?")));
    };
    match scheme {
        "sqlite" => sqlite(&field, rest),
        known if SCHEMES.contains(&known) && rest.is_empty() => {
            Err(field.error(format!("`database`: nothing follows `{known}:`")))
        }
        known if SCHEMES.contains(&known) => Ok(Database::Url(url.to_owned())),
        other => {
            // The rest of the URL may hold a password: it is not repeated.
            let error = field.error(format!("`database`: unknown kind of database `{other}:`"));
            Err(error.meant(other, SCHEMES))
        }
    }
}

/// A SQLite file, from the batch file's folder on.
fn sqlite(field: &Field<'_>, rest: &str) -> Result<Database, FileError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || path == ":memory:" {
        return Err(field.error("`database` names no file").hint("write sqlite:PATH"));
    }
    Ok(Database::Url(format!("sqlite:{}", field.file.dir.join(path).display())))
}

pub(super) fn seed(root: &Section<'_>, database: &Database) -> Result<Option<PathBuf>, FileError> {
    let Some(field) = root.field("seed") else { return Ok(None) };
    let path = beside(&field)?;
    if !path.is_file() {
        let shown = Path::new(field.text()?).display();
        return Err(field.error(format!("`seed`: there is no file {shown}")));
    }
    match database {
        Database::Url(url) if !url.starts_with("sqlite:") => Err(field
            .error("`seed` can only create a SQLite database")
            .hint("create the tables with the database's own tools and leave `seed` out")),
        _ => Ok(Some(path)),
    }
}
