//! Checks permissions of files that other users must not read or write.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longshore_ai::MasterSource;

use super::check_result::CheckResult;
use crate::keyring::KEY_FILE;
use crate::settings::Settings;
use crate::store::StoreUrl;

/// Where the settings come from.
pub(super) fn describe_source(settings: &Settings) -> String {
    match &settings.config_file {
        Some(file) => format!("{} is valid", file.display()),
        None => "no longshore.toml here: using defaults, variables and flags".to_owned(),
    }
}

/// Checks all files.
pub(super) fn check(settings: &Settings) -> Vec<CheckResult> {
    let mut all = Vec::new();
    if let Some(file) = &settings.config_file {
        all.extend(config(file));
    }
    if let StoreUrl::Sqlite(path) = &settings.store {
        all.extend(private("store", path, "it holds every payload"));
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
        all.push(CheckResult::wrong("master key", format!("{problem:#}"), mend));
    }
    all
}

/// The permission bits of group and others; `None` if the file does not exist.
fn other_bits(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o077)
}

/// Write access permits running commands; read access reveals its secrets.
fn config(file: &Path) -> Option<CheckResult> {
    let (open, shown) = (other_bits(file)?, file.display());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    if open & 0o022 != 0 {
        return Some(CheckResult::wrong(
            "permissions",
            format!("{shown} is writable by other users, who could run commands"),
            format!("chmod go-w {shown}"),
        ));
    }
    (open & 0o044 != 0 && has_secret(&text)).then(|| {
        CheckResult::wrong(
            "permissions",
            format!("{shown} holds a secret and is readable by other users"),
            format!("chmod 600 {shown}, or put the secret into the environment"),
        )
    })
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

fn private(area: &'static str, path: &Path, why: &str) -> Option<CheckResult> {
    let shown = path.display();
    (other_bits(path)? & 0o007 != 0).then(|| {
        let says = format!("{shown} is accessible to every user of this machine: {why}");
        CheckResult::doubtful(area, says, format!("chmod o= {shown} {shown}-wal {shown}-shm"))
    })
}

fn secret(area: &'static str, path: &Path) -> Option<CheckResult> {
    let shown = path.display();
    Some(match other_bits(path)? {
        0 => CheckResult::good(area, format!("only its owner can read {shown}")),
        _ => {
            let says = format!("{shown} is readable by other users than its owner");
            CheckResult::wrong(area, says, format!("chmod 600 {shown}"))
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
