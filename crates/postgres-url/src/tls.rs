//! TLS by rustls, on ring. `sslmode` decides how the server's certificate is verified.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::url::{CaSource, TlsMode, UrlError};

/// Where distributions keep their lists of authorities.
const SYSTEM_CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Makes TLS connections. Not used where TLS is off.
pub(crate) fn connector(tls: &TlsMode) -> Result<MakeRustlsConnect, UrlError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = match tls {
        TlsMode::Disable | TlsMode::NoVerify => None,
        TlsMode::VerifyCa(roots) | TlsMode::VerifyFull(roots) => Some(build_verifier(roots, &provider)?),
    };
    let check_name = matches!(tls, TlsMode::VerifyFull(_));
    let check = CertificateVerifier { verifier, check_name, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| UrlError(format!("TLS is not available: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check))
        .with_no_client_auth();
    // PostgreSQL resumes no sessions, and their cache takes memory.
    config.resumption = Resumption::disabled();
    Ok(MakeRustlsConnect::new(config))
}

fn build_verifier(
    roots: &CaSource,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, UrlError> {
    let path = match roots {
        CaSource::File(path) => path,
        CaSource::System => {
            let found = SYSTEM_CA_FILES.iter().map(Path::new).find(|path| path.is_file());
            found.ok_or_else(|| {
                UrlError(
                    "no system list of certificate authorities found: name a file with sslrootcert".into(),
                )
            })?
        }
    };
    let refused = |why: String| UrlError(format!("sslrootcert: {}: {why}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| refused(error.to_string()))?;
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates.filter_map(Result::ok));
    WebPkiServerVerifier::builder_with_provider(store.into(), Arc::clone(provider))
        .build()
        .map_err(|error| refused(error.to_string()))
}

/// Verifies the server's certificate as `sslmode` asks.
#[derive(Debug)]
struct CertificateVerifier {
    /// Verifies the signature; `None` accepts any certificate.
    verifier: Option<Arc<WebPkiServerVerifier>>,
    /// Whether the certificate must be issued for the host's name.
    check_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        match verifier.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.check_name => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
