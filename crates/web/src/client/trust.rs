//! Whom a client believes that was given certificates of its own: who was signed by one of them, and
//! whoever shows one of them. The second is for what `openssl req -x509` makes: a certificate that signed
//! itself and calls itself an authority, which as a server's own is refused by the book.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// TLS that believes the certificates in `pem`; `None` if there are none.
pub(super) fn trusting(pem: &[u8]) -> Option<ClientConfig> {
    let own: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(own.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let by_the_book = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
    let by_the_book = by_the_book.build().ok().filter(|_| taken > 0)?;
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().ok()?.dangerous();
    let check = Arc::new(Check { own, by_the_book });
    Some(config.with_custom_certificate_verifier(check).with_no_client_auth())
}

#[derive(Debug)]
struct Check {
    own: Vec<CertificateDer<'static>>,
    by_the_book: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Check {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.own.contains(certificate) {
            // It is the very one; it must still be for this host.
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.by_the_book.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_the_book.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_the_book.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_the_book.supported_verify_schemes()
    }
}
