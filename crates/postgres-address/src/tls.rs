//! TLS by rustls, on ring. Who the server must be is `sslmode`'s to say.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::{AddressError, Roots, Tls};

/// Where systems keep their lists of authorities.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// What makes connections secure. Where they are not to be, it is not asked.
pub(crate) fn connector(tls: &Tls) -> Result<MakeRustlsConnect, AddressError> {
    let provider = Arc::new(ring::default_provider());
    let known = match tls {
        Tls::Off | Tls::Unchecked => None,
        Tls::Signed(roots) | Tls::Full(roots) => Some(known(roots, &provider)?),
    };
    let named = matches!(tls, Tls::Full(_));
    let check = Check { known, named, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| AddressError(format!("no TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check))
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn known(
    roots: &Roots,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, AddressError> {
    let path = match roots {
        Roots::File(path) => path,
        Roots::System => {
            let found = SYSTEM.iter().map(Path::new).find(|path| path.is_file());
            found.ok_or_else(|| {
                AddressError("no list of authorities here: name one with sslrootcert".into())
            })?
        }
    };
    let refused = |why: String| AddressError(format!("sslrootcert: {}: {why}", path.display()));
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| refused(error.to_string()))?;
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates.filter_map(Result::ok));
    WebPkiServerVerifier::builder_with_provider(store.into(), Arc::clone(provider))
        .build()
        .map_err(|error| refused(error.to_string()))
}

/// Whom we believe.
#[derive(Debug)]
struct Check {
    /// Who must have signed; nobody in particular if there is none.
    known: Option<Arc<WebPkiServerVerifier>>,
    /// Whether the certificate must name the host.
    named: bool,
    provider: Arc<CryptoProvider>,
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
        let Some(known) = &self.known else { return Ok(ServerCertVerified::assertion()) };
        match known.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.named => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
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
