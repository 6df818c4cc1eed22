//! The server's certificate, read again when its files change.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_trusted_path::{PathError, open_secret};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// Minimum time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A certificate and its key, in two files. A new connection checks whether they have changed.
#[derive(Clone)]
pub struct ServerCertificate(Arc<CertificateFiles>);

struct CertificateFiles {
    paths: [PathBuf; 2],
    loaded: Mutex<LoadedCertificate>,
}

struct LoadedCertificate {
    acceptor: TlsAcceptor,
    /// The files when they were last read, whether they were valid or not.
    versions: [Option<FileVersion>; 2],
    checked: Instant,
}

/// Device, inode, length, and time of the last change in seconds and nanoseconds.
type FileVersion = (u64, u64, u64, i64, i64);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The file of the certificate cannot be read.
    #[error("cannot read the certificate")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// The file of the key cannot be read.
    #[error("cannot read the certificate's key")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// The file of the key cannot be opened, or other users can read it.
    #[error("cannot read the certificate's key")]
    KeyFile(#[from] PathError),
    /// Certificate and key do not match, or are invalid.
    #[error("the certificate cannot be used")]
    Pair(#[from] rustls::Error),
}

impl ServerCertificate {
    /// Reads two PEM files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsConfigError> {
        let paths = [certificate.to_path_buf(), key.to_path_buf()];
        let loaded = LoadedCertificate {
            versions: versions(&paths),
            acceptor: read(&paths)?,
            checked: Instant::now(),
        };
        Ok(Self(Arc::new(CertificateFiles { paths, loaded: Mutex::new(loaded) })))
    }

    /// The acceptor of a new connection. Changed files are read; if they are not valid, the certificate before
    /// them stays.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let CertificateFiles { paths, loaded } = &*self.0;
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.checked.elapsed() < CHECK_INTERVAL {
            return loaded.acceptor.clone();
        }
        loaded.checked = Instant::now();
        // Before the files are read: a later change is then found by the next check.
        let versions = versions(paths);
        if loaded.versions != versions {
            loaded.versions = versions;
            match read(paths) {
                Ok(acceptor) => {
                    loaded.acceptor = acceptor;
                    tracing::info!(file = %paths[0].display(), "the certificate was read again");
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, file = %paths[0].display(), "the new certificate is not used");
                }
            }
        }
        loaded.acceptor.clone()
    }
}

fn versions(paths: &[PathBuf; 2]) -> [Option<FileVersion>; 2] {
    let version = |file: fs::Metadata| (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
    paths.each_ref().map(|path| fs::metadata(path).ok().map(version))
}

fn read([certificate, key]: &[PathBuf; 2]) -> Result<TlsAcceptor, TlsConfigError> {
    let chain = CertificateDer::pem_file_iter(certificate).map_err(TlsConfigError::Certificate)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(TlsConfigError::Certificate)?;
    let key =
        PrivateKeyDer::from_pem_reader(BufReader::new(open_secret(key)?)).map_err(TlsConfigError::Key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerCertificate").field(&self.0.paths).finish()
    }
}
