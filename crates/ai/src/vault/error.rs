//! What a vault could not do, in words that hold no byte of a secret.

use std::io;
use std::path::PathBuf;

use longshore::{KeyName, TenantId};

/// What a vault could not do.
///
/// No variant holds what was read or opened, so none can print it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// There is no master key, so nothing can be sealed or opened.
    #[error("no master key is loaded")]
    NoMaster,
    /// The key is wrapped by a master key that is not loaded.
    #[error("{key} is wrapped by master key {master}, which is not loaded")]
    OtherMaster {
        /// Which key.
        key: KeyLabel,
        /// The id of the master key that opens it.
        master: String,
    },
    /// The record does not open: it was changed, or moved from where it was sealed for.
    #[error("{0} does not open: its record was changed, or is not the one that was sealed")]
    Changed(KeyLabel),
    /// There is no such key, or not for this tenant.
    #[error("there is no key `{name}` of `{tenant}`")]
    NotFound {
        /// Whose it should be.
        tenant: TenantId,
        /// Its name.
        name: KeyName,
    },
    /// There is one, but none of its versions may be used any more.
    #[error("{0} may not be used any more: it was revoked, or its time is over")]
    Unusable(KeyLabel),
    /// A key that is to be added is there already.
    #[error("{0} is there already")]
    Exists(KeyLabel),
    /// A secret that cannot be one.
    #[error("the secret {0}")]
    BadSecret(&'static str),
    /// A reference that leads to no key.
    #[error("the reference to a key {0}")]
    BadReference(&'static str),
    /// A variable that holds nothing.
    #[error("the variable {0} is not set, or not text")]
    NoVariable(String),
    /// A master key that is none: not 32 bytes, or not written as such.
    #[error("the master key in {place} {problem}")]
    BadMaster {
        /// Where it was read.
        place: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file that others may read.
    #[error("{} may be read by others (mode {mode:04o})", path.display())]
    TooOpen {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file that cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        problem: &'static str,
        /// What the system said.
        #[source]
        source: Option<io::Error>,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// The store said no.
    #[error(transparent)]
    Store(#[from] longshore::Error),
}

/// A version of a key, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLabel {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: KeyName,
    /// Its version, where one is meant.
    pub version: Option<u32>,
}

impl std::fmt::Display for KeyLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key `{}` of `{}`", self.name, self.tenant)?;
        self.version.map_or(Ok(()), |version| write!(f, " (version {version})"))
    }
}

impl VaultError {
    /// Whether the same may work later without anybody doing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::NoRandomness => true,
            Self::NoMaster
            | Self::OtherMaster { .. }
            | Self::Changed(_)
            | Self::NotFound { .. }
            | Self::Unusable(_)
            | Self::Exists(_)
            | Self::BadSecret(_)
            | Self::BadReference(_)
            | Self::NoVariable(_)
            | Self::BadMaster { .. }
            | Self::TooOpen { .. }
            | Self::File { .. } => false,
        }
    }

    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::TooOpen { path, .. } => format!("chmod 600 {}", path.display()),
            Self::Exists(key) => format!("`key rotate {}` gives it a new version", key.name),
            Self::OtherMaster { .. } => {
                "load the older master key beside the new one until `key rewrap` is done".into()
            }
            Self::BadReference(_) => {
                "write env:NAME, file:PATH, or the name of a key in the vault; \
                 `key add` puts one there"
                    .into()
            }
            Self::BadMaster { .. } => {
                "a file holds 32 bytes, a variable or credential 64 hex digits or base64; \
                 `key init` makes one"
                    .into()
            }
            Self::NoVariable(name) => {
                format!("export {name}=… where this runs, or name another key")
            }
            Self::Unusable(key) => format!("`key rotate {}` gives it a new version", key.name),
            _ => return None,
        })
    }

    pub(super) fn file(path: &std::path::Path, problem: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), problem, source: Some(source) }
    }
}
