//! Checks the permissions of the configuration file. Write access permits running commands; read
//! access reveals its secrets.

use std::fs::Metadata;
use std::path::Path;

use anyhow::anyhow;
use longshore_trusted_path::{check_owner, check_readers, check_writers};

use crate::error::{WithHint, hinted};

/// How the file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A flag or a variable names it, so its owner is trusted.
    Named,
    /// It is in the working directory, where another user may have put it.
    InWorkingDirectory,
}

/// Rejects a file that other users could write, and a file with secrets that they could read.
pub(super) fn check(path: &Path, metadata: &Metadata, found: Found, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    if found == Found::InWorkingDirectory {
        let hint = format!("`--config {shown}` uses it nevertheless");
        check_owner(path, metadata).hint(hint)?;
    }
    check_writers(path, metadata)?;
    if has_secret(text) && check_readers(path, metadata).is_err() {
        let error = anyhow!("{shown} holds a secret and is readable by other users");
        return Err(hinted(error, format!("chmod 600 {shown}, or put the secret into the environment")));
    }
    Ok(())
}

/// Whether a configuration holds a password, or a URL that is a secret itself.
fn has_secret(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).any(|(key, value)| {
        let value = value.trim().trim_matches(['"', '\'']);
        let has_password = value
            .split_once("://")
            .is_some_and(|(_, rest)| rest.split_once('@').is_some_and(|(login, _)| login.contains(':')));
        let is_address = ["webhook", "sentry"].contains(&key.trim()) && !value.is_empty();
        has_password || is_address || value.contains("password=")
    })
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
        ] {
            assert!(has_secret(text), "{text}");
        }
        for text in [
            "store = \"postgres://me@host/db\"",
            "store = \"sqlite:longshore.db\"",
            "# store = \"postgres://me:word@host/db\"",
            "[alerts]\nwebhook = \"\"",
            "[http]\nallow = [\"https://example.com:8443\"]",
        ] {
            assert!(!has_secret(text), "{text}");
        }
    }
}
