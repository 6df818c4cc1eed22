//! TLS by rustls, on ring, with the system's authorities or those of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Where systems keep their lists of authorities.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
#[error("no TLS with {host}: {why}")]
pub struct TlsError {
    host: String,
    why: String,
}

/// What makes connections to one server secure.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl Tls {
    /// For a server of that name, whose certificate one of the authorities signed.
    pub(super) fn new(host: &str, authorities: Option<&Path>) -> Result<Self, TlsError> {
        let refused = |why: String| TlsError { host: host.to_owned(), why };
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| refused(error.to_string()))?;
        let roots = roots(authorities).map_err(refused)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

fn roots(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let system = || SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file());
    let path = authorities.map(Path::to_path_buf).or_else(system);
    let path = path.ok_or("there is no list of authorities here")?;
    let refused = |why: String| format!("{}: {why}", path.display());
    let certificates =
        CertificateDer::pem_file_iter(&path).map_err(|error| refused(error.to_string()))?;
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates.filter_map(Result::ok));
    match added {
        0 => Err(refused("there is no authority in it".into())),
        _ => Ok(store),
    }
}
