//! Where the vault's master key is, and opening the vault with it.
//!
//! The key itself passes through here and is never shown; [`longshore_ai::Vault`] does the rest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore::ledger::Ledger;
use longshore_ai::{MasterKey, MasterSource, Vault};

use crate::env;
use crate::settings::Settings;

/// The file that is looked for in the working directory.
pub const KEY_FILE: &str = "longshore.key";

/// The systemd credential that is looked for.
const CREDENTIAL: &str = "longshore-master";

/// Where the master keys are.
#[derive(Debug, Clone)]
pub struct VaultSettings {
    /// The one that seals; without, it is looked for in the usual places.
    pub key_file: Option<MasterSource>,
    /// Those that were used before.
    pub older: Vec<MasterSource>,
}

impl VaultSettings {
    /// The first place that has a master key. `None` if there is none anywhere.
    fn source(&self) -> Option<MasterSource> {
        let variable = || std::env::var_os(env::MASTER_KEY).is_some();
        let credentials = || std::env::var_os(env::CREDENTIALS).map(PathBuf::from);
        let credential = || credentials().is_some_and(|dir| dir.join(CREDENTIAL).exists());
        match &self.key_file {
            Some(source) => Some(source.clone()),
            None if variable() => Some(MasterSource::Variable(env::MASTER_KEY.to_owned())),
            None if credential() => Some(MasterSource::Credential(CREDENTIAL.to_owned())),
            None => {
                Some(PathBuf::from(KEY_FILE)).filter(|path| path.exists()).map(MasterSource::File)
            }
        }
    }

    /// The file that a new master key is written to.
    pub fn new_file(&self) -> Option<PathBuf> {
        match &self.key_file {
            None => Some(Path::new(KEY_FILE).to_owned()),
            Some(MasterSource::File(path)) => Some(path.clone()),
            Some(MasterSource::Credential(_) | MasterSource::Variable(_)) => None,
        }
    }

    /// The master key, if there is one.
    pub fn master(&self) -> anyhow::Result<Option<MasterKey>> {
        Ok(self.source().map(|source| MasterKey::load(&source)).transpose()?)
    }
}

/// The vault with all the master keys that the settings name.
pub fn open(ledger: Arc<dyn Ledger>, settings: &Settings) -> anyhow::Result<Vault> {
    let mut vault = Vault::new(ledger, settings.vault.master()?);
    for older in &settings.vault.older {
        vault = vault.with_older(MasterKey::load(older)?);
    }
    Ok(vault)
}
