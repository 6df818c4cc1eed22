//! Finds the vault's master key, and opens the vault with it.
//!
//! The key itself is never printed; [`longshore_ai::Vault`] does the rest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore::accounts::Ledger;
use longshore_ai::{MasterKey, MasterSource, Vault};

use crate::config::VaultConfig;
use crate::env;
use crate::settings::Settings;

/// The default file in the working directory.
pub const KEY_FILE: &str = "longshore.key";

/// The default systemd credential.
const CREDENTIAL: &str = "longshore-master";

impl VaultConfig {
    /// The first location that has a master key. `None` if there is none.
    fn source(&self) -> Option<MasterSource> {
        let variable = || std::env::var_os(env::MASTER_KEY).is_some();
        let credentials = || std::env::var_os(env::CREDENTIALS).map(PathBuf::from);
        let credential = || credentials().is_some_and(|dir| dir.join(CREDENTIAL).exists());
        match &self.key_file {
            Some(source) => Some(source.clone()),
            None if variable() => Some(MasterSource::Variable(env::MASTER_KEY.to_owned())),
            None if credential() => Some(MasterSource::Credential(CREDENTIAL.to_owned())),
            None => Some(PathBuf::from(KEY_FILE)).filter(|path| path.exists()).map(MasterSource::File),
        }
    }

    /// The file for a new master key.
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

/// Opens the vault with all master keys of the settings.
pub fn open(ledger: Arc<dyn Ledger>, settings: &Settings) -> anyhow::Result<Vault> {
    let mut vault = Vault::new(ledger, settings.vault.master()?);
    for older in &settings.vault.older {
        vault = vault.with_older(MasterKey::load(older)?);
    }
    Ok(vault)
}
