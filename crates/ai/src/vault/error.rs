//! Errors of the vault. No message contains any byte of a secret.

use std::io;
use std::path::PathBuf;

use longshore::{KeyName, TenantId};
use longshore_trusted_path::PathError;

/// An error of the vault.
///
/// No variant holds what was read or decrypted, so none can print it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// No master key is loaded, so nothing can be sealed or opened.
    #[error("no master key is loaded")]
    NoMaster,
    /// The key is wrapped by a master key that is not loaded.
    #[error("{key} is wrapped by master key {master}, which is not loaded")]
    OtherMaster {
        /// The key.
        key: KeyLabel,
        /// The id of the master key that opens it.
        master: String,
    },
    /// The record does not open: it was changed, or moved from another key.
    #[error("{0} does not open: its record was changed, or is not the one that was sealed")]
    Changed(KeyLabel),
    /// The key does not exist, or belongs to another tenant.
    #[error("there is no key `{name}` of `{tenant}`")]
    NotFound {
        /// The tenant.
        tenant: TenantId,
        /// The key's name.
        name: KeyName,
    },
    /// All versions of the key are revoked or expired.
    #[error("{0} may not be used any more: it was revoked, or its time is over")]
    Unusable(KeyLabel),
    /// The key to add exists already.
    #[error("{0} is there already")]
    Exists(KeyLabel),
    /// The secret is not valid.
    #[error("the secret {0}")]
    BadSecret(&'static str),
    /// The key reference is not valid.
    #[error("the reference to a key {0}")]
    BadReference(&'static str),
    /// The environment variable is not set.
    #[error("the variable {0} is not set, or not text")]
    NoVariable(String),
    /// The master key is not 32 bytes, or not encoded correctly.
    #[error("the master key in {place} {problem}")]
    BadMaster {
        /// Where it was read.
        place: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Other users can read the file, or it is another user's.
    #[error(transparent)]
    Untrusted(PathError),
    /// A file cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What failed.
        problem: &'static str,
        /// The operating system's error.
        #[source]
        source: Option<io::Error>,
    },
    /// The operating system provides no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] longshore::Error),
}

/// A key version in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLabel {
    /// The tenant.
    pub tenant: TenantId,
    /// The key's name.
    pub name: KeyName,
    /// The version, if a specific one is meant.
    pub version: Option<u32>,
}

impl std::fmt::Display for KeyLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key `{}` of `{}`", self.name, self.tenant)?;
        self.version.map_or(Ok(()), |version| write!(f, " (version {version})"))
    }
}

impl VaultError {
    /// Whether a retry may succeed without any change.
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
            | Self::Untrusted(_)
            | Self::File { .. } => false,
        }
    }

    /// What the user can do about it, if known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Untrusted(error) => return error.hint(),
            Self::Exists(key) => format!("`key rotate {}` gives it a new version", key.name),
            Self::OtherMaster { .. } => {
                "load the older master key beside the new one until `key rewrap` is done".into()
            }
            Self::BadReference(_) => "write env:NAME, file:PATH, or the name of a key in the vault; \
                 `key add` puts one there"
                .into(),
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
