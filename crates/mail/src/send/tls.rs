//! TLS by rustls with ring, with the system's certificate authorities or those of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Where systems store their certificate authorities.
const SYSTEM_CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS with {host}: {why}")]
pub struct SmtpTlsError {
    host: String,
    why: String,
}

/// The TLS configuration for one server.
#[derive(Clone)]
pub(super) struct TlsConfig {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl TlsConfig {
    /// Verifies the server's certificate against this name and these authorities.
    pub(super) fn new(host: &str, authorities: Option<&Path>) -> Result<Self, SmtpTlsError> {
        let error = |why: String| SmtpTlsError { host: host.to_owned(), why };
        let name = ServerName::try_from(host.to_owned()).map_err(|cause| error(cause.to_string()))?;
        let roots = load_roots(authorities).map_err(error)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|cause| error(cause.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

fn load_roots(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let system = || SYSTEM_CA_FILES.iter().map(PathBuf::from).find(|path| path.is_file());
    let path = authorities.map(Path::to_path_buf).or_else(system);
    let path = path.ok_or("no file of certificate authorities found: set `authorities`")?;
    let error = |why: String| format!("{}: {why}", path.display());
    let certificates = CertificateDer::pem_file_iter(&path).map_err(|cause| error(cause.to_string()))?;
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates.filter_map(Result::ok));
    match added {
        0 => Err(error("it contains no certificate".into())),
        _ => Ok(store),
    }
}
