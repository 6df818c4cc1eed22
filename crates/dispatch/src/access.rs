//! The access files, one for clients and one for workers: the server's addresses, its certificate,
//! and the secret that peers of that role must present.
//!
//! The server writes them with mode 0600 when it listens, into a folder that all machines of the pool
//! see. The clients' file means control of the pool; with the workers' file a peer gets scripts and
//! reports results. A file that other users can read is rejected.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longshore_trusted_path::{PathError, Symlinks, open_private, write_private};
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Serialize};

use crate::wire::PeerRole;

/// The name of the clients' file in the pool's folder.
pub const FILE: &str = "access.json";
/// The name of the workers' file.
pub const WORKER_FILE: &str = "worker.json";

/// The path of a role's file.
pub(crate) fn path(folder: &Path, role: PeerRole) -> PathBuf {
    folder.join(match role {
        PeerRole::Client => FILE,
        PeerRole::Worker => WORKER_FILE,
    })
}

/// How to reach a server and prove access to it.
#[derive(Debug, Clone)]
pub struct Access {
    /// The server's addresses, in the order in which to try them.
    pub addresses: Vec<SocketAddr>,
    /// The name of the socket for clients on the server's machine, if it has one.
    pub local_socket: Option<String>,
    /// The server's certificate in DER. Peers accept no other.
    pub certificate: Vec<u8>,
    /// The secret that a peer must present.
    pub secret: SecretSlice<u8>,
}

/// Why an access file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The file does not exist.
    #[error("no server is running: there is no access file {0}")]
    Missing(PathBuf),
    /// Other users can read, write or replace the file.
    #[error(transparent)]
    Untrusted(PathError),
    /// The content is invalid.
    #[error("{path} is not a valid access file: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Reading or writing the file failed.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

impl AccessError {
    /// Whether the file belongs to another user, or other users can change it.
    pub fn is_of_another_user(&self) -> bool {
        match self {
            Self::Untrusted(_) => true,
            Self::Io { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            Self::Missing(_) | Self::Damaged { .. } => false,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct AccessFile {
    addresses: Vec<SocketAddr>,
    #[serde(default, rename = "beside", skip_serializing_if = "Option::is_none")]
    local_socket: Option<String>,
    certificate: String,
    secret: String,
}

impl Access {
    /// Reads a role's access file of the pool in `folder`.
    pub fn read(folder: &Path, role: PeerRole) -> Result<Self, AccessError> {
        let path = path(folder, role);
        let io = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => AccessError::Missing(path.clone()),
            _ => AccessError::Io { path: path.clone(), error },
        };
        let mut file = open_private(&path, Symlinks::Reject).map_err(|error| match error {
            PathError::Io { error, .. } => io(error),
            error => AccessError::Untrusted(error),
        })?;
        let mut text = String::new();
        io::Read::read_to_string(&mut file, &mut text).map_err(io)?;
        Self::parse(&text).map_err(|problem| AccessError::Damaged { path, problem })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: AccessFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let bytes = |text: &str| STANDARD.decode(text).map_err(|error| error.to_string());
        let secret = bytes(&file.secret)?;
        if file.addresses.is_empty() || secret.len() < 16 {
            return Err("it has no address, or a secret of less than 16 bytes".into());
        }
        Ok(Self {
            addresses: file.addresses,
            local_socket: file.local_socket,
            certificate: bytes(&file.certificate)?,
            secret: secret.into(),
        })
    }

    /// Writes a role's access file of the pool in `folder` atomically.
    pub fn write(&self, folder: &Path, role: PeerRole) -> Result<(), AccessError> {
        let path = path(folder, role);
        let file = AccessFile {
            addresses: self.addresses.clone(),
            local_socket: self.local_socket.clone(),
            certificate: STANDARD.encode(&self.certificate),
            secret: STANDARD.encode(self.secret.expose_secret()),
        };
        let text = serde_json::to_string_pretty(&file);
        let text =
            text.map_err(|error| AccessError::Damaged { path: path.clone(), problem: error.to_string() })?;
        write_private(&path, text.as_bytes()).map_err(|error| AccessError::Io { path, error })
    }

    /// Removes the access files of the pool in `folder`, so that no peer tries to connect.
    pub fn remove(folder: &Path) {
        for role in PeerRole::ALL {
            let _ = fs::remove_file(path(folder, role));
        }
    }
}

/// Removes temporary files that a killed process left beside `path`.
pub(crate) fn remove_partial_writes(path: &Path) {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return };
    let prefix = format!("{}.", stem.to_string_lossy());
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&prefix) && name.ends_with(".new") {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn access() -> Access {
        Access {
            addresses: vec!["127.0.0.1:7".parse().unwrap()],
            local_socket: Some("longshore-7".into()),
            certificate: vec![1, 2, 3],
            secret: vec![7; 32].into(),
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        access().write(folder.path(), PeerRole::Client).unwrap();
        let read = Access::read(folder.path(), PeerRole::Client).unwrap();
        assert_eq!((&read.addresses, &read.local_socket), (&access().addresses, &access().local_socket));
        assert_eq!(read.secret.expose_secret(), access().secret.expose_secret());
        assert!(!format!("{read:?}").contains("7, 7"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        access().write(folder.path(), PeerRole::Client).unwrap();
        let open = fs::Permissions::from_mode(0o640);
        fs::set_permissions(folder.path().join(FILE), open).unwrap();
        let error = Access::read(folder.path(), PeerRole::Client).unwrap_err().to_string();
        assert!(error.contains("0640"), "{error}");
    }

    #[test]
    fn a_missing_or_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let read = || Access::read(folder.path(), PeerRole::Client);
        assert!(matches!(read(), Err(AccessError::Missing(_))));
        write_private(&folder.path().join(FILE), b"{}").unwrap();
        assert!(matches!(read(), Err(AccessError::Damaged { .. })));
    }
}
