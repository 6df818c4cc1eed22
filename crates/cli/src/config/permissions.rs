//! Checks the permissions of the configuration file. Write access permits running commands; read
//! access reveals its secrets.

use std::fs::Metadata;
use std::path::Path;

use anyhow::anyhow;
use longshore_trusted_path::{check_owner, check_readers, check_writers};
use toml::{Table, Value};

use crate::error::{WithHint, hinted};

/// How the file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A flag or a variable names it, so its owner is trusted.
    Named,
    /// It is in the working directory, where another user may have put it.
    InWorkingDirectory,
}

/// Rejects a file that other users could write.
pub(super) fn check(path: &Path, metadata: &Metadata, found: Found) -> anyhow::Result<()> {
    let shown = path.display();
    if found == Found::InWorkingDirectory {
        let hint = format!("`--config {shown}` uses it nevertheless");
        check_owner(path, metadata).hint(hint)?;
    }
    check_writers(path, metadata)?;
    Ok(())
}

/// Rejects a file with secrets that other users could read.
pub(super) fn check_secrets(path: &Path, metadata: &Metadata, table: &Table) -> anyhow::Result<()> {
    if has_secret(table) && check_readers(path, metadata).is_err() {
        let shown = path.display();
        let error = anyhow!("{shown} holds a secret and is readable by other users");
        return Err(hinted(error, format!("chmod 600 {shown}, or put the secret into the environment")));
    }
    Ok(())
}

/// Parts of the names of environment variables with secrets.
const SECRET_NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "WEBHOOK", "SENTRY"];

/// Whether a configuration holds a password, a URL that is a secret itself, or an environment variable
/// with a secret.
fn has_secret(table: &Table) -> bool {
    table.iter().any(|(key, value)| is_secret("", key, value))
}

fn is_secret(section: &str, key: &str, value: &Value) -> bool {
    match value {
        Value::Table(table) => table.iter().any(|(inner, value)| is_secret(key, inner, value)),
        Value::Array(values) => values.iter().any(|value| is_secret(section, key, value)),
        Value::String(text) => {
            let has_password = text
                .split_once("://")
                .is_some_and(|(_, rest)| rest.split_once('@').is_some_and(|(login, _)| login.contains(':')));
            let is_address = ["webhook", "sentry"].contains(&key) && !text.is_empty();
            let is_variable = section == "env" && !text.is_empty() && is_secret_name(key);
            has_password || is_address || is_variable || text.contains("password=")
        }
        _ => false,
    }
}

/// Whether a variable of this name holds a secret, and not the path of one.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    let is_path = ["_FILE", "_DIR", "_PATH"].iter().any(|end| name.ends_with(end));
    !is_path && SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_a_configuration_is_recognised() {
        for text in [
            "store = \"postgres://me:word@host/db\"",
            "[alerts]\nwebhook = \"https://example.com/x\"",
            "store = 'postgres://me@host/db?password=word'",
            "store = \"\"\"\npostgres://me:word@host/db\"\"\"",
            "[workers.py.env]\nLONGSHORE_MASTER_KEY = 'x'",
            "[supervise.workers.a]\nenv = { OPENAI_API_KEY = 'x' }",
        ] {
            assert!(has_secret(&text.parse().unwrap()), "{text}");
        }
        for text in [
            "store = \"postgres://me@host/db\"",
            "store = \"sqlite:longshore.db\"",
            "# store = \"postgres://me:word@host/db\"",
            "[alerts]\nwebhook = \"\"",
            "[http]\nallow = [\"https://example.com:8443\"]",
            "[workers.py.env]\nTZ = 'UTC'\nLONGSHORE_KEY_FILE = 'key'\nTOKEN = ''",
            "[http]\nenv = ['API_TOKEN']",
        ] {
            assert!(!has_secret(&text.parse().unwrap()), "{text}");
        }
    }
}
