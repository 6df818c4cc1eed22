//! Files that others must not read or write.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longshore_ai::MasterSource;

use super::finding::Finding;
use crate::settings::Settings;
use crate::store::StoreUrl;
use crate::vault::KEY_FILE;

/// Where settings come from.
pub(super) fn whence(settings: &Settings) -> String {
    match &settings.config_file {
        Some(file) => format!("{} can be read and makes sense", file.display()),
        None => "there is no longshore.toml here: defaults, variables and flags".to_owned(),
    }
}

/// Looks at all of them.
pub(super) fn look(settings: &Settings) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some(file) = &settings.config_file {
        all.extend(config(file));
    }
    if let StoreUrl::Sqlite(path) = &settings.store {
        all.extend(private("store", path, "whoever reads it reads every payload"));
    }
    let key = match &settings.vault.key_file {
        Some(MasterSource::File(path)) => Some(path.as_path()),
        Some(_) => None,
        None => Some(Path::new(KEY_FILE)),
    };
    all.extend(key.and_then(|path| secret("master key", path)));
    all.extend(settings.web.tls_key.as_deref().and_then(|path| secret("TLS key", path)));
    if let Err(problem) = settings.vault.master() {
        let mend = crate::error::hint(&problem);
        let mend = mend.unwrap_or_else(|| "docs/ai-profiles.md: the master key".to_owned());
        all.push(Finding::wrong("master key", format!("{problem:#}"), mend));
    }
    all
}

/// The permission bits of others than the owner; nothing if there is no such file.
fn others(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o077)
}

/// Whoever may write it decides what is run here; whoever may read it learns what is in it.
fn config(file: &Path) -> Option<Finding> {
    let (open, shown) = (others(file)?, file.display());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    if open & 0o022 != 0 {
        return Some(Finding::wrong(
            "permissions",
            format!("{shown} may be written by others, who could have commands run"),
            format!("chmod go-w {shown}"),
        ));
    }
    (open & 0o044 != 0 && has_secret(&text)).then(|| {
        Finding::wrong(
            "permissions",
            format!("{shown} holds a secret and may be read by others"),
            format!("chmod 600 {shown}, or put the secret into the environment"),
        )
    })
}

/// Whether a configuration holds a password or an address that is one.
fn has_secret(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).any(|(key, value)| {
        let value = value.trim().trim_matches(['"', '\'']);
        let has_password = value.split_once("://").is_some_and(|(_, rest)| {
            rest.split_once('@').is_some_and(|(who, _)| who.contains(':'))
        });
        let is_address = ["webhook", "sentry"].contains(&key.trim()) && !value.is_empty();
        has_password || is_address || value.contains("password=")
    })
}

fn private(area: &'static str, path: &Path, why: &str) -> Option<Finding> {
    let shown = path.display();
    (others(path)? & 0o007 != 0).then(|| {
        let says = format!("{shown} is open to everybody on this machine: {why}");
        Finding::doubtful(area, says, format!("chmod o= {shown} {shown}-wal {shown}-shm"))
    })
}

fn secret(area: &'static str, path: &Path) -> Option<Finding> {
    let shown = path.display();
    Some(match others(path)? {
        0 => Finding::good(area, format!("only its owner may read {shown}")),
        _ => {
            let says = format!("{shown} may be read by others than its owner");
            Finding::wrong(area, says, format!("chmod 600 {shown}"))
        }
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
