//! Verifies a server's certificate against given certificates: it must be signed by one of them, or be
//! one of them. The latter allows the self-signed CA certificates that `openssl req -x509` creates, which
//! WebPKI rejects as a server certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// A TLS configuration that trusts these certificates. Fails if none of them is valid.
pub fn trust_certificates(pinned: Vec<CertificateDer<'static>>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    // Bundles of systems have certificates that WebPKI does not know.
    roots.add_parsable_certificates(pinned.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let webpki = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let webpki = webpki.build().map_err(|error| Error::General(error.to_string()))?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(PinnedCertVerifier { pinned, webpki });
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct PinnedCertVerifier {
    pinned: Vec<CertificateDer<'static>>,
    webpki: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for PinnedCertVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.pinned.contains(certificate) {
            // A pinned certificate: only the host name is checked.
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
