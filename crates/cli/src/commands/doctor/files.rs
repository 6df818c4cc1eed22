//! Checks permissions of files that other users must not read or write.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longshore_ai::MasterSource;
use longshore_dispatch::access;
use longshore_trusted_path::{
    PathError, Symlinks, check_private_dir, check_private_tree, open_private, open_unwritable,
};

use super::check_result::CheckResult;
use crate::commands::dispatch::state_folder;
use crate::keyring::KEY_FILE;
use crate::settings::Settings;
use crate::store::StoreUrl;

/// A check of a path.
type Check = fn(&Path) -> Result<(), PathError>;

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
    if let StoreUrl::Sqlite(path) = &settings.store {
        all.extend(private("store", path, "it holds every payload"));
    }
    let key = match &settings.vault.key_file {
        Some(MasterSource::File(path)) => Some(path.as_path()),
        Some(_) => None,
        None => Some(Path::new(KEY_FILE)),
    };
    all.extend(key.and_then(|path| secret("master key", path)));
    all.extend(folders(settings));
    all.extend(settings.web.tls_key.as_deref().and_then(|path| secret("TLS key", path)));
    if let Err(problem) = settings.vault.master() {
        let mend = crate::error::hint(&problem);
        let mend = mend.unwrap_or_else(|| "docs/ai-profiles.md: the master key".to_owned());
        all.push(CheckResult::wrong("master key", format!("{problem:#}"), mend));
    }
    all
}

/// Checks the folders that commands reject if other users can read or replace what is in them.
fn folders(settings: &Settings) -> Vec<CheckResult> {
    let pool = settings.dispatch.folder(None);
    let state = state_folder(None, &pool.canonicalize().unwrap_or_else(|_| pool.clone()));
    let [access, worker] = [access::FILE, access::WORKER_FILE].map(|name| pool.join(name));
    let messages = settings.mail.spool.join("keys");
    let open: Check = |path| open_private(path, Symlinks::Reject).map(drop);
    let all: [(_, &Path, Check); 5] = [
        ("dispatch state", &state, check_private_tree),
        ("dispatch access", &access, open),
        ("dispatch access", &worker, open),
        ("mail spool", &messages, check_private_dir),
        ("PID file", &settings.supervise.pid_file, |path| open_unwritable(path).map(drop)),
    ];
    all.into_iter().filter_map(|(area, path, check)| untrusted(area, path, check)).collect()
}

/// The permission bits of group and others; `None` if the file does not exist.
fn other_bits(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o077)
}

/// The finding for a private path that other users can read or replace, if it exists.
fn untrusted(area: &'static str, path: &Path, check: Check) -> Option<CheckResult> {
    path.symlink_metadata().ok()?;
    let error = check(path).err()?;
    let mend = error.hint().unwrap_or_else(|| "run doctor as the user that runs longshore".to_owned());
    Some(CheckResult::wrong(area, error.to_string(), mend))
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
